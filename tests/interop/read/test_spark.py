"""Tasks of a Spark read return the rows of SlateDB's own scan for databases that SlateDB 0.17 wrote.

Without Spark: plans are made and carried out as the data source does it.
"""

import asyncio
import random
import shutil
from pathlib import Path

import anyio
import pytest

from shale.engine.location import DatabaseLocation, resolve
from shale.engine.scan.row_objects import rows_to_list
from shale.env import Env
from shale.types import Row
from shale_spark.source.filters import KeySet
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.plan_reader import open_rows
from shale_spark.source.planner import plan_read
from shale_spark.source.read_plan import ReadPlan
from tests.golden_files import FIXTURES
from tests.interop.read.databases import DATABASES, as_json, concatenate, expected_rows, where_options
from tests.interop.read.test_live_databases import SHAPES, write
from tests.interop.slatedb_databases import open_folder, opened, scanned

EVERY_KEY = KeySet()
OPERATOR = f"{concatenate.__module__}:{concatenate.__name__}"


async def read(where: DatabaseLocation, wanted: KeySet = EVERY_KEY, *, merges: bool = False) -> list[Row]:
    """Return all rows of the tasks of a query, in the order of the tasks."""
    env = Env.system()
    options = SparkReadOptions(where=where, partition_bytes=8192, merge_operator=OPERATOR if merges else None)
    rows: list[Row] = []
    for plan in (await plan_read(options, wanted, env)).plans:
        async with open_rows(ReadPlan.decode(plan.encode()), env) as source:
            while (chunk := await source.next()) is not None:
                rows += rows_to_list(chunk)
    return rows


@pytest.mark.parametrize(("case", "name"), DATABASES)
def test_databases_of_all_kinds(case: str, name: str, tmp_path: Path) -> None:
    """They have clones with external SSTs, segments, projections, codecs, operands, old formats and WAL stores."""
    folder = tmp_path / "store"
    shutil.copytree(FIXTURES / case, folder)
    options = where_options(case, folder)
    where = resolve(name, store=f"file://{folder}", wal_store=options.get("wal_store"))

    async def run() -> None:
        rows = await read(where, merges="merge_operator" in options)
        assert [as_json(row) for row in rows] == expected_rows(case, name)
        keys = [row.key for row in rows[::5]]
        found = await read(where, KeySet().among([*keys, b"absent"]), merges="merge_operator" in options)
        assert found == rows[::5]

    anyio.run(run)


@pytest.mark.parametrize("name", SHAPES)
def test_a_live_database(name: str, tmp_path: Path) -> None:
    """SlateDB's writer and its compactor have the database open."""
    shape = SHAPES[name]

    async def run() -> None:
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await write(db, random.Random(name), shape)
            theirs = [Row(*row) for row in await scanned(db)]
            where = resolve("db", store=f"file://{tmp_path}")
            assert await read(where, merges=shape.merge_operator is not None) == theirs

    asyncio.run(run())
