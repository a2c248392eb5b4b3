"""The frontiers of a writer: how they move, what stops them, and whom each change wakes."""

import gc
from collections.abc import Awaitable, Callable

import anyio
import pytest

from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.landed_durability import LandedDurability
from shale.engine.write.wal_modes import new_durability
from shale.errors import ClosedError, FencedError, ShaleError, UnavailableError
from shale.types import ExclusiveModes, Manifest, Seq

FENCED, CLOSED, ENDED = FencedError("fenced"), ClosedError("closed"), ClosedError("ended")
Change = Callable[[DurabilityTracker], object]


async def woken_by(change: Change, tracker: DurabilityTracker) -> list[str]:
    """Return which of the tracker's signals a change notifies."""
    woken: list[str] = []

    async def wait(name: str) -> None:
        await getattr(tracker, name).wait()
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        for name in ("changed", "status_changed"):
            tasks.start_soon(wait, name)
        await anyio.wait_all_tasks_blocked()
        change(tracker)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return sorted(woken)


BOTH = ["changed", "status_changed"]


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        pytest.param(lambda tracker: tracker.advance_durable(6), BOTH, id="durable"),
        pytest.param(lambda tracker: tracker.advance_durable(5), [], id="nothing newer is durable"),
        pytest.param(lambda tracker: tracker.advance_flushed(6), ["changed"], id="flushed"),
        pytest.param(lambda tracker: tracker.advance_flushed(5), [], id="nothing newer is flushed"),
        pytest.param(lambda tracker: tracker.fail(FENCED), BOTH, id="failed"),
        pytest.param(lambda tracker: tracker.stop_accepting(CLOSED), ["changed"], id="closed"),
        pytest.param(lambda tracker: tracker.end(ENDED), BOTH, id="ended"),
    ],
)
def test_which_waiters_a_change_wakes(change: Change, woken: list[str]) -> None:
    assert anyio.run(woken_by, change, DurabilityTracker(5, 2)) == woken


def test_frontiers_only_grow_and_stop_at_the_first_failure() -> None:
    tracker = DurabilityTracker(5, 2)
    assert (tracker.durable_seq, tracker.flushed_seq, tracker.durable_wal_id) == (5, 5, 2)
    tracker.advance_durable(8)
    tracker.advance_flushed(7)
    tracker.advance_durable(7)
    tracker.advance_flushed(6)
    assert (tracker.durable_seq, tracker.flushed_seq) == (8, 7)
    tracker.fail(FENCED)
    tracker.fail(UnavailableError("later"))
    assert tracker.problem is FENCED
    assert anyio.run(woken_by, lambda each: each.fail(UnavailableError("later still")), tracker) == []
    tracker.advance_durable(100)
    tracker.advance_flushed(100)
    assert (tracker.durable_seq, tracker.flushed_seq) == (8, 7), "a late PUT of a fenced writer acknowledges nothing"


@pytest.mark.parametrize(
    ("changes", "is_open", "check", "check_open"),
    [
        pytest.param([], True, None, None, id="open"),
        pytest.param([lambda each: each.stop_accepting(CLOSED)], False, None, CLOSED, id="closed"),
        pytest.param([lambda each: each.fail(FENCED)], False, FENCED, FENCED, id="failed"),
        pytest.param(
            [lambda each: each.stop_accepting(CLOSED), lambda each: each.fail(FENCED)], False, FENCED, FENCED, id="both"
        ),
    ],
)
def test_what_a_call_gets(
    changes: list[Change], *, is_open: bool, check: ShaleError | None, check_open: ShaleError | None
) -> None:
    tracker = DurabilityTracker()
    assert tracker.is_open
    for change in changes:
        change(tracker)
    assert tracker.is_open is is_open
    for call, expected in ((tracker.check, check), (tracker.check_open, check_open)):
        if expected is None:
            call()
        else:
            with pytest.raises(ShaleError) as caught:
                call()
            assert caught.value is expected


def test_an_error_that_many_callers_get_does_not_collect_their_tracebacks() -> None:
    tracker = DurabilityTracker()
    tracker.fail(FENCED)
    depths = []
    for _ in range(3):
        with pytest.raises(FencedError) as caught:
            tracker.check()
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1] == depths[2]


Wait = Callable[[DurabilityTracker], Awaitable[object]]
WAITS: list[tuple[str, Wait, Change]] = [
    ("durable", lambda each: each.wait_durable(5), lambda each: each.advance_durable(5)),
    ("acknowledged", lambda each: each.wait_acknowledged(5), lambda each: each.advance_durable(5)),
    ("flushed", lambda each: each.wait_flushed(5), lambda each: each.advance_flushed(5)),
]


async def outcome(wait: Wait, *changes: Change) -> object:
    """Return how a wait ends that begins before the changes; it must not end before the last one."""
    tracker, ended = DurabilityTracker(), list[object]()

    async def run() -> None:
        try:
            ended.append(await wait(tracker))
        except ShaleError as error:
            ended.append(error)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            for change in changes:
                await anyio.wait_all_tasks_blocked()
                assert not ended
                change(tracker)
    return ended[0]


@pytest.mark.parametrize(("wait", "advance"), [each[1:] for each in WAITS], ids=[each[0] for each in WAITS])
def test_how_a_wait_ends(wait: Wait, advance: Change) -> None:
    def no_further(tracker: DurabilityTracker) -> None:
        tracker.advance_durable(4)
        tracker.advance_flushed(4)

    async def scenario() -> None:
        assert await outcome(wait, no_further, advance) is None
        assert await outcome(wait, no_further, lambda each: each.fail(FENCED)) is FENCED
        # Flushes of the close still move the frontiers; only its end ends the wait.
        assert await outcome(wait, lambda each: each.stop_accepting(CLOSED), advance) is None
        assert await outcome(wait, lambda each: each.stop_accepting(CLOSED), lambda each: each.end(ENDED)) is ENDED

    anyio.run(scenario)


def test_what_has_happened_is_not_waited_for_even_after_a_failure() -> None:
    async def scenario() -> None:
        tracker = DurabilityTracker(5)
        tracker.fail(FENCED)
        for wait in (tracker.wait_durable, tracker.wait_acknowledged, tracker.wait_flushed):
            await wait(5)
            with pytest.raises(FencedError):
                await wait(6)

    anyio.run(scenario)


def test_a_wait_for_a_flush_ends_once_it_is_blocked() -> None:
    async def scenario() -> None:
        blocked: list[bool] = []

        def is_blocked() -> bool:
            return bool(blocked)

        def block(tracker: DurabilityTracker) -> None:
            blocked.append(True)
            tracker.changed.notify()

        def wait(tracker: DurabilityTracker) -> Awaitable[object]:
            return tracker.wait_flushed(5, is_blocked)

        assert await outcome(wait, lambda each: each.advance_flushed(4), block) is None
        blocked.clear()
        assert await outcome(wait, lambda each: each.fail(FENCED)) is FENCED

    anyio.run(scenario)


def test_the_first_failure_or_the_end_of_a_closed_writer_is_waited_for() -> None:
    async def scenario() -> None:
        def wait(tracker: DurabilityTracker) -> Awaitable[object]:
            return tracker.wait_failed()

        assert await outcome(wait, lambda each: each.advance_durable(9), lambda each: each.fail(FENCED)) is FENCED
        assert await outcome(wait, lambda each: each.stop_accepting(CLOSED), lambda each: each.end(ENDED)) is ENDED

    anyio.run(scenario)


def landed(*files: tuple[int, int], written: tuple[int, ...] = ()) -> LandedDurability:
    """Return a tracker with files in flight, given by their first and last rows; those in ``written`` have ended."""
    tracker = LandedDurability()
    for first, last in files:
        tracker.put_begun(first, last)
    for first in written:
        tracker.put_ended(first, is_written=True)
    return tracker


async def acknowledged(tracker: DurabilityTracker, last: int) -> dict[int, str]:
    """Return what rows 1 to ``last`` are told at once: written, an error, or nothing yet."""
    told: dict[int, str] = {}

    async def wait(seq: int) -> None:
        try:
            await tracker.wait_acknowledged(seq)
            told[seq] = "written"
        except ShaleError as error:
            told[seq] = str(error)

    async with anyio.create_task_group() as tasks:
        for seq in range(1, last + 1):
            tasks.start_soon(wait, seq)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return told


def test_a_row_is_acknowledged_with_its_own_file_and_with_no_other() -> None:
    async def scenario() -> None:
        tracker = landed((1, 2), (3, 5), (6, 6), (7, 9), written=(7, 3))
        assert await acknowledged(tracker, 10) == dict.fromkeys((3, 4, 5, 7, 8, 9), "written")
        tracker.advance_durable(5)
        assert await acknowledged(tracker, 10) == dict.fromkeys((1, 2, 3, 4, 5, 7, 8, 9), "written")

    anyio.run(scenario)


@pytest.mark.slow
def test_files_below_the_frontier_are_forgotten() -> None:
    dropped: list[int] = []

    class Counted(int):
        def __del__(self) -> None:
            dropped.append(int(self))

    tracker = LandedDurability()
    for first, last in ((1, 2), (3, 5), (6, 8)):
        tracker.put_begun(first, Counted(last))
    for first in (6, 3, 1):
        tracker.put_ended(first, is_written=True)
    for seq, expected in ((2, [2]), (4, [2]), (5, [2, 5]), (8, [2, 5, 8])):
        tracker.advance_durable(seq)
        gc.collect()
        assert sorted(dropped) == expected


@pytest.mark.parametrize("change", [lambda each: each.fail(FENCED), lambda each: each.end(FENCED)])
def test_after_a_failure_only_files_in_flight_are_awaited(change: Change) -> None:
    async def scenario() -> None:
        tracker = landed((1, 2), (3, 5), (6, 8), written=(3,))
        tracker.put_ended(1, is_written=False)
        change(tracker)
        at_once = await acknowledged(tracker, 10)
        assert {seq: at_once.get(seq) for seq in (1, 2, 9, 10)} == dict.fromkeys((1, 2, 9, 10), "fenced")
        assert {seq: at_once.get(seq) for seq in (3, 4, 5)} == dict.fromkeys((3, 4, 5), "written")
        if tracker.ended is not None:
            assert {seq: at_once.get(seq) for seq in (6, 7, 8)} == dict.fromkeys((6, 7, 8), "fenced")
            return
        assert not {6, 7, 8} & at_once.keys(), "they may still be written"
        tracker.put_ended(6, is_written=True)
        later = await acknowledged(tracker, 8)
        assert {seq: later.get(seq) for seq in (6, 7, 8)} == dict.fromkeys((6, 7, 8), "written")

    anyio.run(scenario)


def test_the_end_of_a_put_wakes_the_waiters() -> None:
    for is_written in (True, False):
        tracker = landed((1, 2))
        assert anyio.run(woken_by, lambda each, ok=is_written: each.put_ended(1, is_written=ok), tracker) == ["changed"]


@pytest.mark.parametrize(
    ("parallel", "ack", "kind"),
    [
        (1, "contiguous", DurabilityTracker),
        (1, "as_landed", DurabilityTracker),
        (2, "contiguous", DurabilityTracker),
        (2, "as_landed", LandedDurability),
    ],
)
def test_only_a_parallel_wal_acknowledges_as_files_land(parallel: int, ack: str, kind: type[DurabilityTracker]) -> None:
    manifest = Manifest(last_l0_seq=Seq(40), exclusive=ExclusiveModes(max_parallel_writes=parallel))
    tracker = new_durability(manifest, ack, 7)
    assert type(tracker) is kind
    assert (tracker.durable_seq, tracker.flushed_seq, tracker.durable_wal_id) == (40, 40, 7)
