"""``DbReader`` returns the rows of SlateDB's own scan for every database that SlateDB 0.17 wrote."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.engine.db_reader import DbReader
from shale.env import Env, InlineCpu
from shale.errors import CheckpointMissing, MergeOperatorMissing, SegmentExtractorMismatch
from shale.format.sst.filter_policy import FixedPrefix
from tests.clocks import FixedClock
from tests.golden_files import FIXTURES
from tests.interop.read.databases import DATABASES, as_json, expected_rows, where_options

NOWHERE = b"\x00 no such key"


@asynccontextmanager
async def opened(case: str, name: str, folder: Path | None = None, **options: Any) -> AsyncIterator[DbReader]:
    folder = folder or FIXTURES / case
    async with DbReader.open(name, store=f"file://{folder}", **where_options(case, folder), **options) as reader:
        yield reader


async def check(reader: DbReader, live: list[list[Any]]) -> None:
    """Check scans, batches, prefixes, limits and lookups against the expected rows."""
    rows = [row async for row in reader.scan()]
    assert [as_json(row) for row in rows] == live
    assert [row async for batch in reader.scan().batches(7) for row in batch] == rows
    assert [row async for row in reader.scan(limit=3)] == rows[:3]
    keys = [row.key for row in rows]
    assert await reader.get_many([*keys, NOWHERE]) == [*(row.value for row in rows), None]
    for row in rows[::7]:
        assert await reader.get_row(row.key) == row
        assert await reader.get(row.key + b"\x00") == next((r.value for r in rows if r.key == row.key + b"\x00"), None)
        prefix = row.key[:4]
        assert [found async for found in reader.scan(prefix=prefix)] == [r for r in rows if r.key.startswith(prefix)]
    if keys:
        start, stop = keys[len(keys) // 4], keys[3 * len(keys) // 4]
        assert [row async for row in reader.scan(start=start, stop=stop)] == [r for r in rows if start <= r.key < stop]
    assert await reader.get(NOWHERE) is None


@pytest.mark.parametrize(("case", "name"), DATABASES)
def test_following_without_a_checkpoint(case: str, name: str) -> None:
    async def run() -> None:
        async with opened(case, name, follow_latest=True) as reader:
            await check(reader, expected_rows(case, name))

    anyio.run(run)


@pytest.mark.parametrize(("case", "name"), DATABASES)
def test_with_a_checkpoint_of_its_own(case: str, name: str, tmp_path: Path) -> None:
    """The checkpoint exists as long as the reader and names the version that was written for it."""
    folder = tmp_path / "store"
    shutil.copytree(FIXTURES / case, folder)

    async def run() -> None:
        async with opened(case, name, folder) as reader:
            checkpoint = reader.manifest.checkpoint(reader.checkpoint_id or UUID(int=0))
            assert checkpoint is not None
            assert checkpoint.manifest_id == reader.manifest_id
            await check(reader, expected_rows(case, name))
            async with opened(case, name, folder, checkpoint=checkpoint.id) as pinned:
                # A checkpoint does not see WAL files that the manifest did not know of.
                assert {row.key async for row in pinned.scan()} <= {row.key async for row in reader.scan()}
        async with opened(case, name, folder, follow_latest=True) as reader:
            assert reader.manifest.checkpoint(checkpoint.id) is None

    anyio.run(run)


@pytest.mark.parametrize(("case", "name"), [("many_l0", "db"), ("compacted_runs", "db"), ("multi_block_filter", "db")])
def test_lookups_with_the_compiled_kernel(case: str, name: str) -> None:
    async def run() -> None:
        async with opened(case, name, follow_latest=True) as reader:
            for _ in range(2):  # the first round fills the cache
                await check(reader, expected_rows(case, name))

    anyio.run(run)


def env_at(at_ms: int) -> Env:
    return Env(FixedClock(at_ms), Random(0), InlineCpu())


def test_the_state_that_a_checkpoint_pins() -> None:
    contents = json.loads((FIXTURES / "checkpoints" / "contents.json").read_text())
    written_ms = expected_rows("checkpoints", "db")[-1][3]
    seen = []

    async def run() -> None:
        for created in contents["created"]:
            async with opened("checkpoints", "db", checkpoint=created["id"], env=env_at(written_ms)) as reader:
                assert reader.manifest_id == created["manifest_id"]
                seen.append([as_json(row) async for row in reader.scan()])
        with pytest.raises(CheckpointMissing):
            await DbReader.open("db", store=f"file://{FIXTURES}/checkpoints", checkpoint=UUID(int=1))
        with pytest.raises(CheckpointMissing):  # it has a lifetime, which is over by then
            async with opened("checkpoints", "db", checkpoint=contents["created"][1]["id"], env=env_at(2**41)):
                pass

    anyio.run(run)
    first, _, third = seen
    assert first == third != expected_rows("checkpoints", "db")


def test_operands_need_an_operator() -> None:
    async def run() -> None:
        async with DbReader.open("db", store=f"file://{FIXTURES}/merge_operands", follow_latest=True) as reader:
            with pytest.raises(MergeOperatorMissing):
                await reader.get(bytes.fromhex("6d31"))
            with pytest.raises(MergeOperatorMissing):
                _ = [row async for row in reader.scan()]

    anyio.run(run)


def test_another_segment_extractor_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(SegmentExtractorMismatch):
            await DbReader.open(
                "db",
                store=f"file://{FIXTURES}/segments",
                follow_latest=True,
                segment_extractor=FixedPrefix("first4", 4),
            )

    anyio.run(run)
