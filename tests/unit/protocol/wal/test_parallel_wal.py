"""A WAL that is written in parallel: gaps, fences and the frontier (docs/reference/protocol.md 4.13)."""

from functools import partial
from itertools import permutations
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import FencedError
from shale.protocol.manifest_store import WRITER, FenceableManifest
from shale.protocol.transactional import Fenceable
from shale.protocol.wal_fence import FenceRun, WalFence, fence_wal
from shale.protocol.wal_store import WalStore, first_missing
from shale.types import ExclusiveModes, Manifest, WalId
from tests.unit.protocol.conftest import ROOT, Process, World, run


@pytest.mark.parametrize(
    ("ids", "after", "missing"),
    [
        pytest.param((), 0, 1, id="an empty log"),
        pytest.param((1, 2, 3), 0, 4, id="no gap"),
        pytest.param((1, 2, 4, 5), 0, 3, id="a gap"),
        pytest.param((5, 6), 4, 7, id="files up to the start are gone"),
        pytest.param((1, 2, 5), 4, 6, id="files before the start do not count"),
        pytest.param((7,), 4, 5, id="the first one is missing"),
    ],
)
def test_the_first_missing_id(ids: tuple[int, ...], after: int, missing: int) -> None:
    assert first_missing(ids, after) == missing


@given(ids=st.sets(st.integers(1, 40)), after=st.integers(0, 20))
def test_no_file_is_missing_before_the_first_missing_id(ids: set[int], after: int) -> None:
    missing = first_missing(sorted(ids), after)
    assert set(range(after + 1, missing)) <= ids
    assert missing not in ids
    assert missing > after


@given(length=st.integers(2, 5), ids=st.sets(st.integers(1, 25)))
def test_a_run_fills_every_gap_and_ends_after_the_last_file(length: int, ids: set[int]) -> None:
    first, taken = first_missing(sorted(ids), 0), set(ids)
    fences: set[int] = set()
    fencing = FenceRun(length, first, max(ids, default=0))
    while not fencing.is_complete:
        slots = fencing.slots()
        assert 1 <= len(slots) <= length
        fencing.record([slot in taken for slot in slots])
        fences |= set(slots) - taken
    assert ids | fences == set(range(1, fencing.next_id))
    assert set(range(fencing.next_id - length, fencing.next_id)) <= fences
    assert fencing.next_id > max(ids, default=0) + length


@pytest.mark.parametrize("length", [2, 3])
def test_a_slot_of_another_writer_begins_the_run_anew(length: int) -> None:
    for taken in sorted(set(permutations([True] + [False] * (length - 1)))):
        fencing = FenceRun(length, 10, 9)
        fencing.record(taken)
        assert not fencing.is_complete
        after = length - 1 - taken.index(True)
        assert fencing.slots() == range(10 + length, 10 + length + length - after)
        fencing.record([False] * (length - after))
        assert fencing.is_complete


def _an_older_writer_passes(fences: int, limit: int) -> bool:
    """Return whether a writer with ``limit`` puts in flight can write after a run of fences.

    All slots of the run, 0 to ``fences`` - 1, hold fences in the end.  So none of the writer's puts into them succeeds,
    and the first answer, a conflict, stops it: it gets as far as its puts in flight alone.
    """
    begun: list[int] = []
    while len(begun) < limit:
        begun.append(len(begun))
    return any(slot >= fences for slot in begun)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_as_many_fences_as_puts_in_flight_are_enough_and_fewer_are_not(limit: int) -> None:
    assert not _an_older_writer_passes(limit, limit)
    assert _an_older_writer_passes(limit - 1, limit)


def wal_of(process: Process) -> WalStore:
    return WalStore(process.store, ROOT)


async def claimed(process: Process, parallel: int = 2) -> FenceableManifest:
    if await process.manifests.try_read_latest() is None:
        modes = ExclusiveModes(max_parallel_writes=parallel)
        # The examples begin with file 10, so that every id is that of the design document plus 10.
        new = Manifest(exclusive=modes, replay_after_wal_id=WalId(9), next_wal_sst_id=WalId(10))
        await process.manifests.create_new(new)
    return await Fenceable.claim(await process.manifests.load(), WRITER)


class OrderedPuts:
    """A store of one writer whose puts of WAL files wait for their turn in an example."""

    def __init__(self, turns: "Turns", writer: int, objects: Any) -> None:
        self._objects = objects
        self._turns = turns
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def put(self, key: str, *args: Any, **keywords: Any) -> Any:
        """See ``ObjectStore``."""
        if "/wal/" not in key:
            return await self._objects.put(key, *args, **keywords)
        async with self._turns.turn(int(key[-24:-4]) - 10, self._writer):
            return await self._objects.put(key, *args, **keywords)


class Turns:
    """The order of puts in an example: slot and writer of each."""

    def __init__(self, *order: tuple[int, int]) -> None:
        self._left = list(order)
        self._changed = anyio.Condition()

    @property
    def are_over(self) -> bool:
        return not self._left

    def turn(self, slot: int, writer: int) -> "Turn":
        return Turn(self._left, self._changed, (slot, writer))


class Turn:
    def __init__(self, left: list[tuple[int, int]], changed: anyio.Condition, mine: tuple[int, int]) -> None:
        self._left = left
        self._changed = changed
        self._mine = mine

    async def __aenter__(self) -> None:
        async with self._changed:
            while self._left and self._left[0] != self._mine:
                assert self._mine in self._left, f"{self._mine} is not in the example"
                await self._changed.wait()

    async def __aexit__(self, *_: object) -> None:
        async with self._changed:
            if self._left:
                self._left.pop(0)
            self._changed.notify_all()


async def _put_rows(wal: WalStore, slot: int, outcomes: dict[int, bool]) -> None:
    try:
        await wal.put_or_raise_fenced(slot + 10, b"rows")
        outcomes[slot] = True
    except FencedError:
        outcomes[slot] = False


async def _fence(world_process: Process, manifest: FenceableManifest, found: dict[str, WalFence | None]) -> None:
    name = str(manifest.epoch)
    try:
        found[name] = await fence_wal(wal_of(world_process), manifest, 0, world_process.env, world_process.metrics)
    except FencedError:
        found[name] = None


@pytest.mark.fault("F2.21")
def test_the_first_example_of_the_design_document(world: World) -> None:
    """Writer 1 halts at file 2; writer 2 fences with 4 and 5; the rows of 0, 1 and 3 are valid."""

    async def main() -> None:
        turns = Turns((0, 1), (1, 1), (2, 2), (3, 1), (2, 1), (3, 2), (4, 2), (5, 2))
        one = world.process(through=partial(OrderedPuts, turns, 1))
        two = world.process(through=partial(OrderedPuts, turns, 2))
        await claimed(one)
        outcomes: dict[int, bool] = {}
        for slot in (0, 1):
            await _put_rows(wal_of(one), slot, outcomes)
        found: dict[str, WalFence | None] = {}
        newer = await claimed(two)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_fence, two, newer, found)
                for slot in (2, 3):
                    tasks.start_soon(_put_rows, wal_of(one), slot, outcomes)
        assert turns.are_over
        assert outcomes == {0: True, 1: True, 2: False, 3: True}
        fence = found["2"]
        assert fence is not None
        assert [wal_id - 10 for wal_id in fence.ids] == [4, 5]
        assert two.metric("slatedb_wal_fence_retries_total") == 2
        files = await wal_of(two).list()
        assert [(file.id - 10, file.is_fence) for file in files] == [
            (0, False), (1, False), (2, True), (3, False), (4, True), (5, True),
        ]  # fmt: skip

    run(main)


@pytest.mark.fault("F2.21")
def test_the_second_example_of_the_design_document(world: World) -> None:
    """Writer 3 owns the end of the log; the rows of 0, 1 and 3 are valid, and writers 1 and 2 have halted.

    As writer 2 reads the manifest after its first conflict, it halts there and not two slots later.
    """

    async def main() -> None:
        turns = Turns((0, 1), (1, 1), (2, 3), (3, 1), (2, 1), (3, 3), (2, 2), (3, 2), (4, 3), (5, 3))
        one, two, three = (world.process(through=partial(OrderedPuts, turns, writer)) for writer in (1, 2, 3))
        await claimed(one)
        outcomes: dict[int, bool] = {}
        for slot in (0, 1):
            await _put_rows(wal_of(one), slot, outcomes)
        older, newer = await claimed(two), await claimed(three)
        found: dict[str, WalFence | None] = {}
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for process, manifest in ((two, older), (three, newer)):
                    tasks.start_soon(_fence, process, manifest, found)
                for slot in (2, 3):
                    tasks.start_soon(_put_rows, wal_of(one), slot, outcomes)
        assert turns.are_over
        assert outcomes == {0: True, 1: True, 2: False, 3: True}
        assert found["2"] is None
        fence = found["3"]
        assert fence is not None
        assert [wal_id - 10 for wal_id in fence.ids] == [4, 5]
        assert [file.id - 10 for file in await wal_of(three).list() if not file.is_fence] == [0, 1, 3]

    run(main)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
@pytest.mark.parametrize("later", [(), (2,), (2, 3, 5)])
def test_the_frontier_is_before_the_first_gap(world: World, count: int, later: tuple[int, ...]) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        for wal_id in [*range(101, 101 + count), *(100 + count + each for each in later)]:
            await wal.put_or_raise_fenced(wal_id, b"x")
        assert await wal.last_seen_wal_id(100, has_gaps=True) == 100 + count

    run(main)


def test_ids_are_listed_after_one(world: World) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        for wal_id in (1, 2, 9):
            await wal.put_or_raise_fenced(wal_id, b"x")
        assert await wal.ids_after(0) == [1, 2, 9]
        assert await wal.ids_after(1) == [2, 9]
        assert await wal.ids_after(9) == []

    run(main)


@pytest.mark.parametrize("parallel", [2, 4])
def test_gaps_are_filled_before_the_run(world: World, parallel: int) -> None:
    async def main() -> None:
        process = world.process()
        wal = wal_of(process)
        for wal_id in (10, 11, 13):
            await wal.put_or_raise_fenced(wal_id, b"x")
        fence = await fence_wal(wal, await claimed(process, parallel), 0, process.env)
        assert fence.ids == range(14, 14 + parallel)
        assert fence.next_wal_id == 14 + parallel
        assert [file.id for file in await wal.list()] == list(range(10, 14 + parallel))

    run(main)
