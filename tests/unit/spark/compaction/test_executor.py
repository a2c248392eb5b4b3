"""Settings that no compaction on Spark supports are refused before one starts."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import shale
from shale.compaction.requests import Full
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidDbState, InvalidRequestError
from shale.service.config.spark_section import SparkSettings
from shale.store.memory import MemoryStore
from shale_spark.compaction.executor import require_executable
from shale_spark.compaction.worker import SparkWorkerOptions, compact

SOMEWHERE = DatabaseLocation("s3://bucket", "db")
CONNECT = "sc://host:15002"


@pytest.mark.parametrize(
    ("where", "settings", "message"),
    [
        (DatabaseLocation(MemoryStore(), "db"), SparkSettings(), "a store that executors can reach by its URL"),
        (DatabaseLocation("memory:///", "db"), SparkSettings(), "a store that executors can reach by its URL"),
        (SOMEWHERE, SparkSettings(master=CONNECT, event_host="10.0.0.1"), r"spark\.ranges must be set"),
        (SOMEWHERE, SparkSettings(master=CONNECT, ranges=4), r"spark\.event_host must be set"),
    ],
)
def test_it_is_refused(where: DatabaseLocation, settings: SparkSettings, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        require_executable(where, settings)


@pytest.mark.parametrize("settings", [SparkSettings(), SparkSettings(master=CONNECT, ranges=4, event_host="10.0.0.1")])
def test_what_is_possible_passes(settings: SparkSettings) -> None:
    require_executable(SOMEWHERE, settings)


def test_nothing_is_submitted_that_could_not_be_executed() -> None:
    # Neither the session nor the request is looked at: no database is touched.
    nothing = cast("Any", object())
    with pytest.raises(InvalidRequestError, match="a store that executors can reach by its URL"):
        compact(nothing, DatabaseLocation(MemoryStore(), "db"), nothing, worker_options=SparkWorkerOptions())


def test_an_error_comes_as_itself(tmp_path: Path) -> None:
    """It is not wrapped in a group of errors."""
    where = DatabaseLocation(f"file://{tmp_path}", "db")

    async def make() -> None:
        async with shale.Db.open("db", store=where.store):
            pass

    asyncio.run(make())
    with pytest.raises(InvalidDbState, match="start a compactor once"):
        compact(cast("Any", object()), where, Full(), worker_options=SparkWorkerOptions())
