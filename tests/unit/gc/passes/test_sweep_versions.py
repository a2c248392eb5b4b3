"""Sweeping old versions in a store: the versions that stay when the newest one is damaged."""

import anyio
import pytest

from shale.env import Env
from shale.errors import CorruptionError
from shale.format.compactions import encode_compactions
from shale.format.manifest import encode_manifest
from shale.format.names import compactions_key, manifest_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.store.memory import MemoryStore
from shale.types import Compactions, Manifest

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
