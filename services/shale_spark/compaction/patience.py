"""How long somebody waits for one compaction: a worker tries for ever, and nobody reads its log here."""

from typing import NoReturn

import anyio

from shale.telemetry.error_types import is_retryable
from shale.types import Sst
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.progress import JobProgress

ATTEMPTS_MAX = 3
"""Each of them is as many attempts at a task as Spark is told to make."""


class Patience(JobExecutor):
    """Carries out jobs as another executor does, until an error says that it is in vain."""

    def __init__(self, executor: JobExecutor, attempts_max: int = ATTEMPTS_MAX) -> None:
        self._executor = executor
        self._left = attempts_max
        self._error: Exception | None = None
        self._ended = anyio.Event()

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``."""
        try:
            return await self._executor.run(job, progress)
        except Exception as error:
            self._left -= 1
            if not self._left or not is_retryable(error):
                self._error = self._error or error
                self._ended.set()
            raise

    async def raise_end(self) -> NoReturn:
        """Wait until there is no point in waiting.

        Raises:
            Exception: the one that another attempt could not avoid, or that the last one ended with.
        """
        await self._ended.wait()
        assert self._error is not None, "set before"
        raise self._error
