"""One Spark job from an event loop: it runs in a thread and is ended together with its tasks."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from shale.errors import ShaleError, UnavailableError
from shale_spark.compaction.channel import Channel
from shale_spark.compaction.task import compact_range
from shale_spark.tags import interrupt
from shale_spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERRUPT_S = 0.5
_GONE_S = 8.0
"""A task that is ended has two seconds by Spark's default; then its Python worker is killed."""


class SparkFailed(UnavailableError):
    """Spark gave a job up.  What was finished is recorded; another attempt goes on behind it."""


async def run_stage(session: "SparkSession", plans: Sequence[bytes], tag: str, channel: Channel) -> None:
    """Run the plans as tasks until all have ended; when cancelled, return once they are gone, or after 8 s.

    Raises:
        ShaleError: what a task reported as final.
        SparkFailed: the tasks failed too often, or the session was lost.
    """
    ended = anyio.Event()
    failures: list[Exception] = []
    thread = anyio.CancelScope(shield=True)

    async def work() -> None:
        run = partial(run_tasks, session, plans, compact_range, tag=tag)
        with thread:
            try:
                await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001 - py4j, Spark and sockets raise what they like; it is raised below
                failures.append(error)
            finally:
                ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, name="spark")
        try:
            await _first_of(ended, channel.failed)
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(session, tag, channel, ended)
                thread.cancel()
    if channel.failure is not None:
        raise channel.failure
    if failures:
        raise _translated(failures[0])


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as waiters:

        async def end_with(event: anyio.Event) -> None:
            await event.wait()
            waiters.cancel_scope.cancel()

        for event in events:
            waiters.start_soon(end_with, event)


async def _stop(session: "SparkSession", tag: str, channel: Channel, ended: anyio.Event) -> None:
    """Let no task go on.  The interrupt is repeated: Spark forgets one that comes before its job."""
    channel.refuse_all()
    with anyio.move_on_after(_GONE_S):
        while not ended.is_set():
            await anyio.to_thread.run_sync(_interrupt, session, tag, abandon_on_cancel=True)
            with anyio.move_on_after(_INTERRUPT_S):
                await ended.wait()
        await channel.wait_until_gone(_GONE_S)


def _interrupt(session: "SparkSession", tag: str) -> None:
    with suppress(Exception):  # a session that is lost has no tasks, and its thread raises why
        interrupt(session, tag)


def _translated(error: Exception) -> ShaleError:
    if isinstance(error, ShaleError):
        return error
    lines = str(error).strip().splitlines() or [""]
    known = [line.strip() for line in lines if "AttemptLost: " in line]
    reason = known[-1].partition("AttemptLost: ")[2] if known else lines[0]
    failed = SparkFailed(f"Spark gave the compaction up: {type(error).__name__}: {reason}")
    failed.__cause__ = error
    return failed
