"""What lookups and scans counted, with kernels and without: every use once, however often it took to decide."""

from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.env import Env, InlineCpu, SystemClock
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.kernels.dispatch import use_kernels
from shale.sst.access_counts import AccessCounts
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics

POLICIES = (BloomPolicy(10, FixedPrefix("p1", 1)),)


class World:
    """A database with two L0s of 50 keys each, a… below b…, and its reader's metrics."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.where: dict[str, Any] = {"store": MemoryStore(), "env": Env(SystemClock(), Random(1), InlineCpu())}

    async def fill(self) -> None:
        async with shale.Db.open("db", **self.where, min_filter_keys=1, filter_policies=POLICIES) as db:
            for letter in (b"a", b"b"):
                for number in range(50):
                    await db.put(letter + b"%02d" % number, b"v")
                await db.flush("memtable")

    def reader(self) -> Any:
        return shale.DbReader.open(
            "db", **self.where, metrics=self.metrics, follow_latest=True, filter_policies=POLICIES
        )

    def shown(self) -> dict[str, int]:
        self.metrics.refresh()
        found = {}
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.name.startswith(("slatedb_db_cache_acc", "slatedb_db_sst_filter")) and sample.value:
                    labels = [value for name, value in sorted(sample.labels.items()) if name != "db"]
                    if not sample.name.endswith("_created"):
                        name = sample.name.removeprefix("slatedb_db_").removesuffix("_total")
                        found[" ".join((name, *labels))] = int(sample.value)
        return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}


@pytest.mark.parametrize("many", [False, True])
def test_lookups_by_kernels(many: bool) -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")

    async def run() -> None:
        world = World()
        await world.fill()
        async with world.reader() as reader:
            await reader.cache.warm()
            before = world.shown()
            keys = [b"a%02d" % number for number in range(20)]
            if many:
                assert await reader.get_many(keys) == [b"v"] * 20
            else:
                for key in keys:
                    assert await reader.get(key) == b"v"
            assert grown(before, world.shown()) == {
                "cache_accesses index hit": 20,
                "cache_accesses filter hit": 20,
                "cache_accesses data_block hit": 20,
                "sst_filter_positives point": 20,
            }, "the other SST does not show these keys"
            before = world.shown()
            assert await reader.get(b"a10x") is None
            assert grown(before, world.shown()) == {
                "cache_accesses index hit": 1,
                "cache_accesses filter hit": 1,
                "sst_filter_negatives point": 1,
            }

    anyio.run(run)


def test_lookups_that_read() -> None:
    async def run() -> None:
        world = World()
        await world.fill()
        async with world.reader() as reader:
            assert await reader.get(b"a10") == b"v"
            assert world.shown() == {
                "cache_accesses index miss": 1,
                "cache_accesses filter miss": 1,
                "cache_accesses data_block miss": 1,
                "sst_filter_positives point": 1,
            }
            await reader.cache.evict(start=b"a", stop=b"a2")
            before = world.shown()
            assert await reader.get_many([b"a10", b"b10"]) == [b"v", b"v"]
            assert grown(before, world.shown())["sst_filter_positives point"] == 2

    anyio.run(run)


def test_scans_of_prefixes() -> None:
    async def run() -> None:
        world = World()
        await world.fill()
        async with world.reader() as reader:
            assert len([row async for row in reader.scan(prefix=b"a")]) == 50
            assert world.shown()["sst_filter_positives prefix"] == 1
            assert len([row async for row in reader.scan(prefix=b"a3")]) == 10
            assert world.shown()["sst_filter_positives prefix"] == 2
            assert len([row async for row in reader.scan(start=b"a")]) == 100
            assert world.shown()["sst_filter_positives prefix"] == 2

    anyio.run(run)


def test_a_hit_that_is_taken_back_before_it_is_counted_again() -> None:
    """Metrics may be read in between: counters only grow."""
    counts, metrics = AccessCounts(), Metrics()
    counts.export(metrics)
    shown = []
    for step in (5, -1, 1, 2):
        counts.block_hits += step
        metrics.refresh()
        shown.append(
            metrics.registry.get_sample_value(
                "slatedb_db_cache_accesses_total", {"db": "", "entry_kind": "data_block", "result": "hit"}
            )
        )
    assert shown == [5, 5, 5, 7]
