"""Concurrent uploads: ids by dispatch, publication in order, and a limit (docs/reference/protocol.md 4.8, 16.2)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import shale
from shale.env import Env, InlineCpu
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore


class StoreWithASlowUpload(MemoryStore):
    """A store that holds the first SST with the given name until it is released, and counts started uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.running = self.most = 0
        self.hold = anyio.Event()

    async def put(self, key: str, *args: Any, **keywords: Any) -> Any:
        if "/compacted/" not in key:
            return await super().put(key, *args, **keywords)
        self.begun.append(key)
        self.running += 1
        self.most = max(self.most, self.running)
        if len(self.begun) == 1:
            await self.hold.wait()
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        return await super().put(key, *args, **keywords)


@pytest.mark.fault("F2.11")
@pytest.mark.parametrize("extractor", [None, FixedPrefix("one", 1)], ids=["one tree", "segments"])
def test_tables_that_overtake_a_slow_upload_wait_for_it(extractor: FixedPrefix | None) -> None:
    """A collector deletes unpublished SSTs older than the newest published L0, so they are published in order."""

    async def scenario() -> None:
        store = StoreWithASlowUpload()
        in_order = replace(Env.system(), cpu=InlineCpu())  # with threads, a later table may be built first
        db = await shale.Db.open(
            "db", store=store, env=in_order, flush_interval=0, l0_sst_size_bytes=200, max_unflushed_bytes=10**6,
            l0_flush_parallelism=3, segment_extractor=extractor,
        )  # fmt: skip
        version = db.status.manifest_id
        for number in range(18):
            handle = await db.put(b"%s%d" % (b"ab"[number % 2 : number % 2 + 1], number), bytes(40))
        await handle.durable()
        with anyio.move_on_after(60):
            while len(store.begun) < 3 or store.running > 1:
                await anyio.lowlevel.checkpoint()
        times = [Path(key).name[:10] for key in store.begun]
        assert times == sorted(times), "ids are drawn in the order of dispatch"
        assert store.most <= 3
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert (db.status.manifest_id, db.status.manifest.last_l0_seq) == (version, 0), (
            "nothing passes the oldest table"
        )
        store.hold.set()
        await db.flush("memtable")
        ids_ms = [[view.id.ms for view in tree.l0] for _, tree in db.status.manifest.trees()]
        assert all(of_tree == sorted(of_tree, reverse=True) for of_tree in ids_ms)
        assert sum(map(len, ids_ms)) == len(store.begun) >= 6
        assert len([row async for row in db.scan()]) == 18
        await db.close()

    anyio.run(scenario)
