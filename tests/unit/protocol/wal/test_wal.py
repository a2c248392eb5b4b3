"""The WAL's frontier and its fences: docs/reference/protocol.md 4.2, 4.3, traces T4.a to T4.d and T4.g."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import FencedError, InvalidDbState, ProtocolPanic
from shale.format.names import deleting_key, destroyed_key, wal_key
from shale.protocol.manifest_store import WRITER, FenceableManifest
from shale.protocol.markers import is_destroyed, require_not_destroyed
from shale.protocol.transactional import Fenceable
from shale.protocol.wal_fence import fence_wal
from shale.protocol.wal_store import WalStore
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta
from shale.types import Manifest, WalId
from tests.unit.protocol.conftest import ROOT, Process, World, run


def wal_of(process: Process) -> WalStore:
    return WalStore(process.store, ROOT)


@given(start=st.integers(0, 2**40), count=st.integers(0, 1200))
def test_the_frontier_is_found_by_probing(start: int, count: int) -> None:
    probes = 0

    class Range(WalStore):
        async def exists(self, wal_id: int) -> bool:
            nonlocal probes
            probes += 1
            return start < wal_id <= start + count

    async def main() -> None:
        process = World().process()
        assert await Range(process.store, ROOT).last_seen_wal_id(start) == start + count

    run(main)
    assert probes <= 8 * 2 + 10


def test_a_wal_without_an_end() -> None:
    class Endless(WalStore):
        async def exists(self, wal_id: int) -> bool:
            return True

    async def main() -> None:
        process = World().process()
        with pytest.raises(InvalidDbState):
            await Endless(process.store, ROOT).last_seen_wal_id(0)

    run(main)


def test_files_and_fences(world: World) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        await wal.put_or_raise_fenced(1, b"rows")
        assert await wal.try_put_fence(2)
        assert not await wal.try_put_fence(1)
        for taken in (1, 2):
            with pytest.raises(FencedError):
                await wal.put_or_raise_fenced(taken, b"other")
        for junk in (f"{7:020}.sst#1", "8.sst", f"{9:020}.tmp"):
            await world.memory.put(f"{ROOT}/wal/{junk}", b"junk")
        assert [(file.id, file.is_fence) for file in await wal.list()] == [(1, False), (2, True)]
        assert await wal.read(1) == b"rows"
        assert await wal.read(2) == b""
        assert await wal.read(3) is None
        await wal.delete(1)
        assert not await wal.exists(1)

    run(main)


async def claimed(process: Process) -> FenceableManifest:
    if await process.manifests.try_read_latest() is None:
        await process.manifests.create_new(Manifest())
    return await Fenceable.claim(await process.manifests.load(), WRITER)


def test_t4a_a_fence_stops_the_old_writer(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await wal_of(a).put_or_raise_fenced(1, b"x")
        await wal_of(a).put_or_raise_fenced(2, b"x")
        probe_id = await wal_of(b).last_seen_wal_id(0) + 1
        fence = await fence_wal(wal_of(b), await claimed(b), probe_id, b.env, b.metrics)
        assert (fence.id, fence.attempts, fence.next_wal_id) == (3, 1, 4)
        with pytest.raises(FencedError):
            await wal_of(a).put_or_raise_fenced(3, b"x")

    run(main)


@pytest.mark.parametrize("appended", [1, 3, 20])
def test_t4b_an_append_between_probe_and_fence_counts(world: World, appended: int) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        probe_id = await wal_of(b).last_seen_wal_id(0) + 1
        for wal_id in range(1, appended + 1):
            await wal_of(a).put_or_raise_fenced(wal_id, b"x")
        fence = await fence_wal(wal_of(b), await claimed(b), probe_id, b.env, b.metrics)
        assert (fence.id, fence.attempts) == (appended + 1, appended + 1)
        assert b.metric("slatedb_wal_fence_retries_total") == appended

    run(main)


def test_t4c_a_newer_writer_got_the_slot(world: World) -> None:
    async def main() -> None:
        b, c = world.process(), world.process()
        older = await claimed(b)
        newer = await claimed(c)
        assert (await fence_wal(wal_of(c), newer, 1, c.env)).id == 1
        with pytest.raises(FencedError):
            await fence_wal(wal_of(b), older, 1, b.env)
        assert [file.id for file in await wal_of(b).list()] == [1]

    run(main)


async def epoch_in(world: World, wal_id: int) -> str | None:
    meta = await world.memory.head(wal_key(ROOT, wal_id))
    assert meta is not None
    return (meta.attributes or {}).get("writerepoch")


def test_files_and_fences_carry_the_epoch_of_their_writer(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await claimed(a)
        manifest = await claimed(b)
        fence = await fence_wal(wal_of(b), manifest, 1, b.env)
        await wal_of(b).put_or_raise_fenced(fence.next_wal_id, b"x", epoch=manifest.epoch)
        assert [await epoch_in(world, 1), await epoch_in(world, 2)] == ["2", "2"]
        unmarked = WalStore(b.store, ROOT, marks_epoch=False)
        await unmarked.put_or_raise_fenced(3, b"x", epoch=manifest.epoch)
        assert await epoch_in(world, 3) is None

    run(main)


def test_the_epoch_costs_no_request_without_a_conflict(world: World) -> None:
    async def main() -> None:
        requests: list[str] = []

        class Counting(MemoryStore):
            async def put(self, key: str, *args: Any, **options: Any) -> str:
                requests.append("put")
                return await super().put(key, *args, **options)

            async def head(self, key: str) -> ObjectMeta | None:
                requests.append("head")
                return await super().head(key)

        process = world.process(through=lambda _: Counting())
        await wal_of(process).put_or_raise_fenced(1, b"x", epoch=1)
        assert await wal_of(process).try_put_fence(2, epoch=1)
        assert requests == ["put", "put"]

    run(main)


def test_a_file_of_our_own_epoch_and_another_put_is_a_panic(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        manifest = await claimed(a)
        await wal_of(b).put_or_raise_fenced(1, b"x", epoch=manifest.epoch)
        with pytest.raises(ProtocolPanic, match="same epoch"):
            await wal_of(a).put_or_raise_fenced(1, b"y", epoch=manifest.epoch)
        with pytest.raises(ProtocolPanic, match="same epoch"):
            await fence_wal(wal_of(a), manifest, 1, a.env)
        assert [file.id for file in await wal_of(a).list()] == [1]

    run(main)


def test_a_slot_of_a_lower_epoch_is_passed_and_one_of_a_higher_epoch_fences(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await claimed(a)
        manifest = await claimed(b)
        await wal_of(a).put_or_raise_fenced(1, b"x", epoch=1)
        assert (await fence_wal(wal_of(b), manifest, 1, b.env)).id == 2
        # The manifest does not know of this epoch: it was restored from an older state.
        await wal_of(a).put_or_raise_fenced(3, b"x", epoch=9)
        with pytest.raises(FencedError, match="epoch 9"):
            await fence_wal(wal_of(b), manifest, 3, b.env)

    run(main)


@pytest.mark.parametrize("junk", ["", "-1", "²", "two"])
def test_an_epoch_that_is_no_number_counts_as_none(world: World, junk: str) -> None:
    async def main() -> None:
        process = world.process()
        await world.memory.put(wal_key(ROOT, 1), b"x", attributes={"writerepoch": junk})
        assert await wal_of(process).require_other_epoch(1, 1) is None
        assert await wal_of(process).require_other_epoch(2, 1) is None, "deleted meanwhile"

    run(main)


def test_t4d_the_old_writer_flushed_after_the_probe(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        old = await claimed(a)
        probe_id = 5
        for wal_id in range(1, 8):
            await wal_of(a).put_or_raise_fenced(wal_id, b"x")
        await old.apply(lambda current: replace(current.value, replay_after_wal_id=WalId(7), next_wal_sst_id=WalId(8)))
        for wal_id in range(1, 7):
            await wal_of(a).delete(wal_id)
        fence = await fence_wal(wal_of(b), await claimed(b), probe_id, b.env)
        assert fence.id == 8

    run(main)


def test_t4g_a_gap_is_fenced_not_jumped(world: World) -> None:
    async def main() -> None:
        a = world.process()
        for wal_id in (1, 2, 3, 5):
            await wal_of(a).put_or_raise_fenced(wal_id, b"x")
        probe_id = await wal_of(a).last_seen_wal_id(0) + 1
        assert (await fence_wal(wal_of(a), await claimed(a), probe_id, a.env)).id == 4

    run(main)


@pytest.mark.parametrize("key", [destroyed_key(ROOT), deleting_key(ROOT)])
def test_markers(world: World, key: str) -> None:
    async def main() -> None:
        store = world.process().store
        await require_not_destroyed(store, ROOT)
        await world.memory.put(key, b"")
        assert await is_destroyed(store, ROOT)
        with pytest.raises(InvalidDbState, match="destroyed"):
            await require_not_destroyed(store, ROOT)

    run(main)
