"""Reads of a writer and of readers when an SST is gone: replaced in the meantime, or lost."""

from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, SstMissing
from shale.format.names import sst_key
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, RunId, SortedRun, Sst, SstView


class World:
    def __init__(self) -> None:
        self.env = Env(SystemClock(), Random(1), InlineCpu())
        self.store = MemoryStore(self.env.clock)
        self.metrics = Metrics()

    def open(self, kind: Any = shale.Db, **settings: Any) -> Any:
        return kind.open("db", store=self.store, env=self.env, metrics=self.metrics, block_cache_bytes=0, **settings)

    def corruptions(self) -> float | None:
        """Return how often a damaged or missing SST was found."""
        labels = {"db": "", "resource": "compacted"}
        return self.metrics.registry.get_sample_value("slatedb_corruption_total", labels)

    async def replace_l0(self) -> None:
        """Act as a compaction and a collector: copy the oldest L0 into a run, and delete the original."""
        stored = await ManifestStore(self.store, "db", self.env).load()
        old = stored.value.tree.l0[-1]
        new_id = self.env.ids.ulid(old.id.ms)
        await self.store.put(sst_key("db", new_id), (await self.store.get(sst_key("db", old.sst.id))).data)  # type: ignore[union-attr]

        def promoted(current: Versioned[Manifest]) -> Manifest | None:
            tree = current.value.tree
            if tree.l0[-1] != old:
                return None
            run = SortedRun(id=RunId(0), ssts=(SstView.identity(Sst(id=new_id, info=old.sst.info)),))
            moved = replace(
                tree, l0=tree.l0[:-1], compacted=(run,),
                last_compacted_l0_sst_view_id=old.id, last_compacted_l0_sst_id=old.sst.id,
            )  # fmt: skip
            return replace(current.value, tree=moved)

        await stored.apply(promoted)
        await self.store.delete(sst_key("db", old.sst.id))


async def fill(db: shale.Db, padding: int = 0) -> None:
    for start in (0, 100):
        async with db.batch() as batch:
            for number in range(start, start + 100):
                batch.put(b"%03d" % number, b"%d" % start + bytes(padding))
        await db.flush("memtable")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_on_where_it_was(reverse: bool) -> None:
    async def run() -> None:
        world = World()
        async with world.open(manifest_poll_interval="1h") as db:
            await fill(db)
            begun, later = db.scan(reverse=reverse), db.scan(reverse=reverse)
            rows = await begun.next_batch(60)
            await db.put(b"050", b"newer")
            await db.delete(b"150")
            await db.flush("memtable")
            await world.replace_l0()
            rows += await begun.next_batch(1000)
            assert [row.key for row in rows] == sorted((row.key for row in rows), reverse=reverse)
            assert {row.key: row.value for row in rows} == {b"%03d" % n: b"%d" % (n // 100 * 100) for n in range(200)}
            assert [row async for row in later] == rows
            assert await db.get(b"007") == b"0"
            assert await db.get_many([b"050", b"150", b"008"]) == [b"newer", None, b"0"]
            assert db.status.manifest.tree.compacted, "the newer manifest was found by reading"

    anyio.run(run)


def test_what_is_lost_is_an_error_that_names_it() -> None:
    async def run() -> None:
        world = World()
        async with world.open(manifest_poll_interval="1h") as db:
            await fill(db)
            lost = db.status.manifest.tree.l0[0].sst.id
            await world.store.delete(sst_key("db", lost))
            for read in (db.get(b"150"), db.get_row(b"150"), db.get_many([b"150", b"151"]), db.scan().columns()):
                with pytest.raises(SstMissing, match=str(lost)) as raised:
                    await read
                assert isinstance(raised.value, CorruptionError)
            assert await db.get(b"050") == b"0"
        assert world.corruptions() == 4

    anyio.run(run)


def test_a_reader_without_protection_looks_again() -> None:
    """A lookup, and a scan without a returned row, read the newest state; later scans fail."""

    async def run() -> None:
        world = World()
        async with world.open() as db:
            await fill(db, padding=10_000)  # more than a scan reads before it gives anything
            settings = {"follow_latest": True, "manifest_poll_interval": "1h"}
            async with world.open(DbReader, **settings) as reader, world.open(DbReader, **settings) as other:
                begun, waiting = reader.scan(read_ahead_bytes=1), reader.scan()
                await begun.next_batch(1)
                await db.put(b"050", b"newer")
                await db.flush("memtable")
                await world.replace_l0()
                with pytest.raises(SstMissing):
                    await begun.next_batch(1000)
                assert len(await waiting.next_batch(1000)) == 200
                assert await other.get(b"007") == b"0" + bytes(10_000)
                assert (await other.get_many([b"050", b"008"])) == [b"newer", b"0" + bytes(10_000)]

    anyio.run(run)
