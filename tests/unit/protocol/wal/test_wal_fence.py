"""Fences against writers whose files carry no epoch, and what an operator sees of a search for a free slot."""

from dataclasses import replace

import pytest

from shale.errors import FencedError, ProtocolPanic
from shale.format.names import wal_key
from shale.protocol.manifest_store import WRITER, FenceableManifest
from shale.protocol.transactional import Fenceable
from shale.protocol.wal_fence import FenceRun, WalFence, fence_wal
from shale.protocol.wal_store import WalStore
from shale.types import ExclusiveModes, Manifest, WalId
from tests.unit.protocol.conftest import ROOT, Process, World, run


def unmarked(process: Process) -> WalStore:
    """Return the WAL as SlateDB writes it: no file tells its epoch."""
    return WalStore(process.store, ROOT, marks_epoch=False)


async def claimed(process: Process, *, parallel: int = 1, replayed_id: int = 0) -> FenceableManifest:
    if await process.manifests.try_read_latest() is None:
        modes = ExclusiveModes(max_parallel_writes=parallel) if parallel > 1 else None
        new = Manifest(exclusive=modes, replay_after_wal_id=WalId(replayed_id), next_wal_sst_id=WalId(replayed_id + 1))
        await process.manifests.create_new(new)
    return await Fenceable.claim(await process.manifests.load(), WRITER)


async def listed(process: Process) -> list[int]:
    return [file.id for file in await unmarked(process).list()]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_taken_slot_without_an_epoch_is_decided_by_the_manifest(world: World, parallel: int) -> None:
    async def main() -> None:
        older, newer = world.process(), world.process()
        manifest = await claimed(older, parallel=parallel)
        fence = await fence_wal(unmarked(newer), await claimed(newer, parallel=parallel), 1, newer.env)
        assert fence.ids == range(1, parallel + 1)
        before = await listed(newer)
        with pytest.raises(FencedError):
            await _put_all(older, manifest, parallel)
        assert await listed(newer) == before

    run(main)


async def _put_all(process: Process, manifest: FenceableManifest, parallel: int) -> None:
    """Fence as a writer that listed the WAL before the newer one has put its fences."""

    class Early(WalStore):
        async def ids_after(self, wal_id: int) -> list[WalId]:  # type: ignore[override]
            return []

    wal = Early(process.store, ROOT, marks_epoch=False)
    await fence_wal(wal, manifest, 1, process.env)


def test_one_taken_slot_of_a_run_is_enough_to_read_the_manifest(world: World) -> None:
    async def main() -> None:
        older, newer = world.process(), world.process()
        manifest = await claimed(older, parallel=3)
        await claimed(newer)
        assert await unmarked(newer).try_put(2, b"rows")
        with pytest.raises(FencedError):
            await fence_wal(unmarked(older), manifest, 0, older.env)

    class Unlisted(WalStore):
        async def ids_after(self, wal_id: int) -> list[WalId]:  # type: ignore[override]
            return []

    async def taken_after_the_listing() -> None:
        other = World()
        older, newer = other.process(), other.process()
        manifest = await claimed(older, parallel=3)
        await claimed(newer)
        assert await unmarked(newer).try_put(2, b"rows")
        with pytest.raises(FencedError):
            await fence_wal(Unlisted(older.store, ROOT, marks_epoch=False), manifest, 0, older.env)
        assert await listed(newer) == [1, 2, 3], "the slots of one round, and no later one"

    run(taken_after_the_listing)
    run(main)


@pytest.mark.parametrize(
    ("files", "parallel", "fences", "attempts"),
    [
        pytest.param((), 2, range(10, 12), 2, id="an empty log"),
        pytest.param((10,), 2, range(11, 13), 2, id="one file"),
        pytest.param((10, 11, 13), 2, range(14, 16), 4, id="a gap of one file"),
        pytest.param((10, 16), 2, range(17, 19), 8, id="a gap that holds a whole run"),
        pytest.param((10, 16), 3, range(17, 20), 9, id="a gap that holds a longer run"),
        pytest.param((12, 13), 2, range(14, 16), 6, id="the first files are missing"),
    ],
)
def test_a_run_begins_after_the_last_file_that_was_listed(
    world: World, files: tuple[int, ...], parallel: int, fences: range, attempts: int
) -> None:
    async def main() -> None:
        process = world.process()
        for wal_id in files:
            await unmarked(process).put_or_raise_fenced(wal_id, b"x")
        manifest = await claimed(process, parallel=parallel, replayed_id=9)
        fence = await fence_wal(unmarked(process), manifest, 0, process.env, process.metrics)
        assert (fence.ids, fence.attempts, fence.next_wal_id) == (fences, attempts, fences.stop)
        assert await listed(process) == list(range(10, fences.stop)), "no gap is left"
        assert process.metric("slatedb_wal_fence_retries_total") == attempts - parallel

    run(main)


def test_a_run_that_meets_its_own_epoch_is_a_panic(world: World) -> None:
    class Unlisted(WalStore):
        async def ids_after(self, wal_id: int) -> list[WalId]:  # type: ignore[override]
            return []

    async def main() -> None:
        process = world.process()
        manifest = await claimed(process, parallel=2)
        wal = Unlisted(process.store, ROOT)
        await wal.put_or_raise_fenced(2, b"x", epoch=manifest.epoch)
        with pytest.raises(ProtocolPanic, match="same epoch"):
            await fence_wal(wal, manifest, 0, process.env)

    run(main)


@pytest.mark.parametrize(("found", "is_fenced"), [(1, False), (3, True)])
@pytest.mark.parametrize("parallel", [1, 2])
def test_the_epoch_in_a_slot_decides_where_there_is_one(
    world: World, found: int, is_fenced: bool, parallel: int
) -> None:
    class Unlisted(WalStore):
        async def ids_after(self, wal_id: int) -> list[WalId]:  # type: ignore[override]
            return []

    async def main() -> None:
        process = world.process()
        await claimed(process, parallel=parallel)
        manifest = await claimed(process)
        wal = Unlisted(process.store, ROOT)
        await wal.put_or_raise_fenced(1, b"x", epoch=found)
        if is_fenced:
            with pytest.raises(FencedError, match=f"{wal_key(ROOT, 1)} is a file of epoch 3, ours is 2; a database"):
                await fence_wal(wal, manifest, 1, process.env)
        else:
            assert (await fence_wal(wal, manifest, 1, process.env)).id == 1 + parallel

    run(main)


@pytest.mark.parametrize(("probe_id", "fence_id"), [(7, 8), (8, 8), (9, 9)])
def test_a_probe_at_or_before_the_start_of_replay_is_made_again(world: World, probe_id: int, fence_id: int) -> None:
    async def main() -> None:
        process = world.process()
        manifest = await claimed(process, replayed_id=7)
        assert (await fence_wal(unmarked(process), manifest, probe_id, process.env)).id == fence_id

    run(main)


def test_a_writer_that_is_fenced_before_its_second_probe_puts_no_fence(world: World) -> None:
    async def main() -> None:
        older, newer = world.process(), world.process()
        manifest = await claimed(older, replayed_id=7)
        await claimed(newer)
        with pytest.raises(FencedError):
            await fence_wal(unmarked(older), manifest, 3, older.env)
        assert await listed(older) == []

    run(main)


def test_the_duration_of_a_fence_is_measured(world: World) -> None:
    class Slow(WalStore):
        async def try_put(self, *args: object, **options: object) -> bool:
            world.clock.sleep(2)
            return await super().try_put(*args, **options)  # type: ignore[arg-type]

    async def main() -> None:
        process = world.process()
        manifest = await claimed(process)
        wal = Slow(process.store, ROOT)
        await wal.put_or_raise_fenced(1, b"x")
        await fence_wal(wal, manifest, 1, process.env, process.metrics)
        assert process.metric("slatedb_wal_fence_duration_seconds_sum") == 4
        assert process.metric("slatedb_wal_fence_duration_seconds_count") == 1
        assert process.metric("slatedb_wal_fence_retries_total") == 1

    run(main)


def test_the_slots_of_a_fence() -> None:
    assert (WalFence(WalId(9), 5).ids, WalFence(WalId(9), 5, 3).ids) == (range(9, 10), range(7, 10))
    assert WalFence(WalId(9), 5, 3).next_wal_id == 10


@pytest.mark.parametrize(
    ("next_id", "last_seen_id", "fences", "is_complete", "slots"),
    [
        (5, 4, 0, False, range(5, 8)),
        (7, 4, 2, False, range(7, 8)),
        (8, 4, 3, True, range(8, 9)),
        (8, 5, 3, False, range(8, 9)),
        (9, 5, 4, True, range(9, 10)),
        (9, 5, 2, False, range(9, 10)),
    ],
)
def test_a_run_is_complete_after_as_many_fences_as_puts_in_flight(
    next_id: int, last_seen_id: int, fences: int, is_complete: bool, slots: range
) -> None:
    fencing = FenceRun(3, next_id, last_seen_id, fences)
    assert fencing.is_complete is is_complete
    assert fencing.slots() == slots


def test_old_writers_keep_the_rows_before_the_fence(world: World) -> None:
    async def main() -> None:
        process = world.process()
        manifest = await claimed(process)
        await manifest.apply(lambda current: replace(current.value, next_wal_sst_id=WalId(2)))
        await unmarked(process).put_or_raise_fenced(1, b"rows")
        fence = await fence_wal(unmarked(process), manifest, 1, process.env)
        assert (fence.id, fence.attempts, fence.count) == (2, 2, 1)
        assert await unmarked(process).read(1) == b"rows"

    run(main)
