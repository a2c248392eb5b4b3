"""Sweeping old versions in a store: those that stay when the newest one is damaged or the boundary is not written."""

from typing import Any

import anyio
import pytest

from shale.env import Env
from shale.errors import CorruptionError, UnavailableError
from shale.format.compactions import encode_compactions
from shale.format.manifest import encode_manifest
from shale.format.names import boundary_key, compactions_key, manifest_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.store.memory import MemoryStore
from shale.types import Compactions, Manifest
from tests.clocks import ManualClock
from tests.unit.gc.passes.collector_world import AGE_S, World

QUICK = TaskOptions(min_age_s=0)


@pytest.mark.parametrize("damaged", [False, True])
def test_old_compactions_stay_while_the_newest_cannot_be_read(damaged: bool) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        good = encode_compactions(Compactions())
        await store.put(manifest_key("db", 1), encode_manifest(Manifest()))
        for number in (1, 2, 3):
            await store.put(compactions_key("db", number), good[:5] if damaged and number == 3 else good)
        await anyio.sleep(0.01)
        collector = Collector(store, "db", Env.system(), GcOptions(compactions=QUICK))
        if damaged:
            with pytest.raises(CorruptionError, match=compactions_key("db", 3)):
                await collector.sweep(Task.COMPACTIONS)
        else:
            await collector.sweep(Task.COMPACTIONS)
        left = [meta.key for meta in await store.list("db/compactions/")]
        assert left == [compactions_key("db", number) for number in ((1, 2, 3) if damaged else (3,))]
        assert (await store.get("db/gc/compactions.boundary") is None) is damaged

    anyio.run(scenario)


def test_the_versions_of_a_pass_that_fails_are_counted() -> None:
    class Broken(MemoryStore):
        async def put(self, key: str, *args: Any, **options: Any) -> Any:
            if key == boundary_key("db", "manifest"):
                raise UnavailableError("broken")
            return await super().put(key, *args, **options)

    async def scenario() -> None:
        world = World(Broken(ManualClock()))
        await world.write(Manifest(), Manifest(), Manifest())
        world.clock.sleep(AGE_S + 1)
        with pytest.raises(UnavailableError, match="broken"):
            await world.collector().sweep(Task.MANIFEST)
        assert world.value("gc_versions", resource="manifest") == 3
        assert world.below("manifest") == [manifest_key("db", number) for number in (1, 2, 3)]

    anyio.run(scenario)
