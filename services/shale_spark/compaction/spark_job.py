"""One Spark job run from an event loop: in a thread, and ended together with its tasks."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from shale.errors import ShaleError, UnavailableError
from shale_spark.blocking_call import BlockingCall, run_until
from shale_spark.compaction.task import compact_range
from shale_spark.compaction.task_server import TaskServer
from shale_spark.tasks import interrupt, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GONE_S = 8.0
"""An interrupted task has two seconds by Spark's default; then its Python worker is killed."""


class SparkJobFailed(UnavailableError):
    """Spark gave a job up.  Finished SSTs are recorded; another attempt goes on after them."""


async def run_spark_job(session: "SparkSession", plans: Sequence[bytes], tag: str, server: TaskServer) -> None:
    """Run the plans as tasks until all have ended; when cancelled, return once they are gone, or after 8 s.

    Raises:
        ShaleError: what a task reported as final.
        SparkJobFailed: the tasks failed too often, or the session was lost.
    """
    call = BlockingCall(partial(run_tasks, session, plans, compact_range, tag=tag))
    await run_until(call, partial(_first_of, call.ended, server.failed), partial(_stop, session, tag, server, call))
    if server.failure is not None:
        raise server.failure
    if call.error is not None:
        raise _translated(call.error)


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as waiters:

        async def end_with(event: anyio.Event) -> None:
            await event.wait()
            waiters.cancel_scope.cancel()

        for event in events:
            waiters.start_soon(end_with, event)


async def _stop(session: "SparkSession", tag: str, server: TaskServer, call: BlockingCall[list[bytes]]) -> None:
    """End all tasks."""
    server.close_to_attempts()
    with anyio.move_on_after(_GONE_S):
        await call.interrupt_until_ended(partial(_interrupt, session, tag))
        await server.wait_until_gone(_GONE_S)


def _interrupt(session: "SparkSession", tag: str) -> None:
    with suppress(Exception):  # a lost session has no tasks, and the thread of the job raises the reason
        interrupt(session, tag)


def _translated(error: Exception) -> ShaleError:
    if isinstance(error, ShaleError):
        return error
    lines = str(error).strip().splitlines() or [""]
    known = [line.strip() for line in lines if "AttemptLost: " in line]
    reason = known[-1].partition("AttemptLost: ")[2] if known else lines[0]
    failed = SparkJobFailed(f"Spark gave the compaction up: {type(error).__name__}: {reason}")
    failed.__cause__ = error
    return failed
