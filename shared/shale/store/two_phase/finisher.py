"""Finishes committed puts after the caller has its answer (docs/reference/protocol.md 12.3, ``ack_after = record``)."""

import anyio

from shale.concurrency.task_host import TaskHost
from shale.errors import ShaleError
from shale.store.transactional.port import CommitRecord
from shale.store.two_phase.commit import TwoPhaseCommits
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

PENDING_MAX = 16
"""Puts that wait to be finished; a further put waits."""
log = get_logger("two_phase")


class BackgroundFinisher:
    """Copies staged objects and sets their records committed, in tasks that live until ``aclose``.

    A failure changes no outcome: the recovery of any process finishes the put.  The bytes are not kept: they belong to
    the caller again.
    """

    def __init__(self, commits: TwoPhaseCommits) -> None:
        self._commits = commits
        self._places = anyio.Semaphore(PENDING_MAX)
        self._host: TaskHost | None = None
        self._starting = anyio.Lock()

    async def finish_later(self, record: CommitRecord) -> None:
        """Start to finish an uncommitted record; wait for one of the earlier ones if there are too many."""
        await self._places.acquire()
        try:
            async with self._starting:
                if self._host is None:
                    host = TaskHost("two_phase.finish")
                    await host.start()
                    self._host = host
        except BaseException:
            self._places.release()
            raise
        self._host.group.start_soon(self._finish, record, name="two_phase.finish")

    async def aclose(self) -> None:
        """Wait until all have been finished or have failed."""
        if self._host is None:
            return
        for _ in range(PENDING_MAX):
            await self._places.acquire()
        host, self._host = self._host, None
        await host.stop()
        for _ in range(PENDING_MAX):
            self._places.release()

    async def _finish(self, record: CommitRecord) -> None:
        try:
            if await self._commits.write_destination(record):
                await self._commits.finish(record)
        except ShaleError as error:
            log.error(
                Event.TWO_PHASE_RECOVERY_FAILED, destination=record.destination, source=record.source, error=error
            )
        finally:
            self._places.release()
