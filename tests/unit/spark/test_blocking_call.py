"""A blocking call in a thread: its result, its error, interrupts, and a call that no interrupt ends."""

import threading

import anyio
import anyio.lowlevel
import pytest

from shale_spark.blocking_call import BlockingCall, run_until

pytestmark = pytest.mark.anyio


async def nothing() -> None:
    """Stop nothing."""


async def test_a_call_returns_its_result() -> None:
    call = BlockingCall(lambda: 7)
    await run_until(call, call.ended.wait, nothing)
    assert call.result() == 7
    assert call.error is None


async def test_an_error_is_kept_until_the_result_is_asked_for() -> None:
    call: BlockingCall[None] = BlockingCall(lambda: (_ for _ in ()).throw(ValueError("of the call")))
    await run_until(call, call.ended.wait, nothing)
    assert isinstance(call.error, ValueError)
    with pytest.raises(ValueError, match="of the call"):
        call.result()


async def test_a_cancelled_call_is_interrupted_until_it_has_ended() -> None:
    release = threading.Event()
    call = BlockingCall(lambda: release.wait(10.0))
    interrupts: list[int] = []

    def interrupt() -> None:
        interrupts.append(1)
        if len(interrupts) == 2:  # the first one is ignored, as Spark ignores one that comes before its job
            release.set()

    async def stop() -> None:
        await call.interrupt_until_ended(interrupt)

    with anyio.move_on_after(0.01) as scope:
        await run_until(call, anyio.sleep_forever, stop)
    assert scope.cancelled_caught
    assert call.result() is True
    assert len(interrupts) == 2


async def test_a_call_that_runs_on_is_abandoned() -> None:
    release = threading.Event()
    call = BlockingCall(lambda: release.wait(10.0))
    try:
        with anyio.fail_after(60):
            await run_until(call, anyio.lowlevel.checkpoint, nothing)
        assert not release.is_set()
        assert call.ended.is_set()
    finally:
        release.set()
