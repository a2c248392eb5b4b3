"""Lookups that leave the cache of blocks as it is."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.plain_kernels import without_kernels


def block_misses(metrics: Metrics) -> int:
    metrics.refresh()
    return int(
        sum(
            sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if sample.name == "slatedb_db_cache_accesses_total"
            and sample.labels.get("entry_kind") == "data_block"
            and sample.labels.get("result") == "miss"
        )
    )


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else tmp_path.as_uri()


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
def test_what_they_read_is_not_kept(store: Any, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()

    async def run() -> None:
        async with Db.open("db", store=store, merge_operator="concatenate") as db:
            for key in (b"a", b"b"):
                await db.put(key, b"1")
            await db.flush("memtable")
            await db.merge(b"b", b"2")
            await db.flush("memtable")
            await db.merge(b"b", b"3")
            await db.flush("wal")
        if not kernels:
            without_kernels(monkeypatch)
        async with DbReader.open(
            "db", store=store, merge_operator="concatenate", follow_latest=True, metrics=metrics
        ) as reader:
            found = block_misses(metrics)
            for _ in range(2):
                before = found
                assert await reader.get(b"a", cache_blocks=False) == b"1"
                assert await reader.get(b"b", cache_blocks=False) == b"123"
                row = await reader.get_row(b"b", cache_blocks=False)
                assert row is not None
                assert row.value == b"123"
                assert await reader.get(b"c", cache_blocks=False) is None
                found = block_misses(metrics)
                assert found >= before + 3, "a block was kept"
            keys = [b"a", b"b", b"c", b"a0", b"b0"]
            for _ in range(2):
                before = found
                assert await reader.get_many(keys, cache_blocks=False) == [b"1", b"123", None, None, None]
                found = block_misses(metrics)
                assert found >= before + 2, "a block was kept"
            assert await reader.get(b"a") == b"1"
            assert await reader.get(b"b") == b"123"
            found = block_misses(metrics)
            for _ in range(2):
                assert await reader.get(b"a", cache_blocks=False) == b"1"
                assert await reader.get(b"b", cache_blocks=False) == b"123"
                assert await reader.get_many([b"a", b"b"], cache_blocks=False) == [b"1", b"123"]
            assert block_misses(metrics) == found, "what the cache has is used"

    anyio.run(run)
