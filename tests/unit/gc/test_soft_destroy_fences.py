"""Soft destroys of a database whose writers and compactors start at the same time."""

from dataclasses import replace
from typing import Any

import pytest

from shale.errors import FencedError
from shale.format.names import destroyed_key, wal_key
from shale.gc.soft_destroy import destroy_later
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import COMPACTOR, WRITER
from shale.protocol.transactional import Fenceable
from shale.store.memory import MemoryStore
from shale.types import ExclusiveModes, Manifest
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run


class Busy(MemoryStore):
    """Another process claims an epoch after each of the first objects with a certain name that this one writes."""

    harness: Harness
    role: Any = WRITER
    trigger = "/wal/"
    claims = 0

    async def put(self, key: str, *args: Any, **options: Any) -> Any:
        written = await super().put(key, *args, **options)
        if self.claims and self.trigger in key:
            self.claims -= 1
            trigger, self.trigger = self.trigger, "no key"
            await Fenceable.claim(await self.harness.manifests().load(), self.role)
            self.trigger = trigger
        return written


def busy() -> tuple[Harness, Busy]:
    harness = Harness()
    store = Busy(harness.clock)
    store.harness = harness
    harness.store = store
    return harness, store


@pytest.mark.parametrize(("claims", "ends"), [(1, True), (4, True), (5, False)])
def test_writers_that_start_meanwhile_are_fenced_too(claims: int, ends: bool) -> None:
    async def main() -> None:
        harness, store = busy()
        await harness.make()
        before = (await harness.latest()).writer_epoch
        files = len([key for key in harness.listing() if "/wal/" in key])
        store.claims = claims
        if ends:
            await destroy_later(harness.target())
            assert (await harness.latest()).writer_epoch == before + 2 * claims + 1
            fences = len([key for key in harness.listing() if "/wal/" in key]) - files
            assert fences == claims + 1
        else:
            with pytest.raises(FencedError):
                await destroy_later(harness.target())
            assert destroyed_key("db") not in harness.listing()

    run(main)


@pytest.mark.parametrize(("claims", "ends"), [(1, True), (4, True), (5, False)])
def test_compactors_that_start_meanwhile_are_fenced_too(claims: int, ends: bool) -> None:
    async def main() -> None:
        harness, store = busy()
        await harness.make()
        await CompactionsStore(harness.store, "db", harness.env).load_or_create()
        before = (await harness.latest()).compactor_epoch
        store.role, store.trigger, store.claims = COMPACTOR, "/compactions/", claims
        if ends:
            await destroy_later(harness.target())
            manifest = await harness.latest()
            compactions = await CompactionsStore(harness.store, "db", harness.env).read_latest()
            assert manifest.compactor_epoch == before + 2 * claims + 1
            assert compactions.value.compactor_epoch == manifest.compactor_epoch
        else:
            with pytest.raises(FencedError):
                await destroy_later(harness.target())
            assert destroyed_key("db") not in harness.listing()

    run(main)


def test_the_first_fence_is_right_after_the_last_file() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        files = [key for key in harness.listing() if "/wal/" in key]
        await destroy_later(harness.target())
        last_id = int(files[-1].rpartition("/")[2].removesuffix(".sst"))
        added = [key for key in harness.listing() if "/wal/" in key and key not in files]
        assert added == [wal_key("db", last_id + 1)]
        assert harness.store.objects[added[0]].data == b""

    run(main)


def test_the_fence_goes_to_the_free_slot_at_once() -> None:
    """The files that the destroy has listed are not tried first."""

    async def main() -> None:
        harness = Harness()
        await harness.manifests().create_new(Manifest())
        for number in (1, 2, 3):
            await harness.store.put(wal_key("db", number), b"rows")
        target = harness.target()
        await destroy_later(target)
        value = target.metrics.registry.get_sample_value
        assert value("slatedb_wal_fence_duration_seconds_count", {"db": ""}) == 1
        assert value("slatedb_wal_fence_retries_total", {"db": ""}) == 0
        assert harness.store.objects[wal_key("db", 4)].data == b""

    run(main)


def test_the_gaps_of_a_parallel_wal_in_its_own_store_are_fenced() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make(wal_store=harness.wal_store)
        stored = await harness.manifests().load()
        modes = ExclusiveModes(max_parallel_writes=2)
        replayed_id = stored.value.replay_after_wal_id
        await stored.apply(lambda current: replace(current.value, exclusive=modes))
        harness.wal_store.objects.clear()
        for number in (1, 2, 4):
            await harness.wal_store.put(wal_key("db", replayed_id + number), b"rows")
        await destroy_later(harness.target(wal=True))
        assert harness.listing(harness.wal_store) == [wal_key("db", replayed_id + number) for number in range(1, 7)]

    run(main)
