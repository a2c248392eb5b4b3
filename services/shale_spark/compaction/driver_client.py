"""A task's end of its connection to the driver."""

from types import TracebackType
from typing import Self

import anyio

from shale.concurrency.signal import WakeEvent
from shale.errors import ShaleError
from shale.telemetry.metrics import Metrics
from shale.types import Sst
from shale_compactor.execution.progress import JobProgress
from shale_spark.compaction.messages import (
    AttemptRefused,
    Message,
    MessageStream,
    RangeDone,
    RangeFinished,
    RangeStart,
    ReportAccepted,
    TaskFailed,
    TaskHello,
    TaskReport,
)
from shale_spark.compaction.task_server import GONE
from shale_spark.errors import encode_error

_REPORT_S = 1.0
_ANSWER_S = 30.0
_CONNECT_S = 20.0


class AttemptLost(Exception):
    """This attempt cannot go on, and another one may: no ``ShaleError``, so that Spark tries again."""


class Superseded(Exception):
    """A newer attempt owns the range."""


class DriverClient:
    """Claims the range, reports progress, and reports the end of the range.

    Args:
        address: host and port of the driver.
        hello: identifies this attempt.
        metrics: the counters of this task's executor, which are sent to the driver.
    """

    def __init__(self, address: tuple[str, int], hello: TaskHello, metrics: Metrics) -> None:
        self._address = address
        self._hello = hello
        self._news = WakeEvent()
        self._counts = _Counts(metrics)
        self._fresh: list[Sst] = []
        self._count = 0
        self._last: Sst | None = None
        self._is_ending = False
        self._wire: MessageStream

    async def __aenter__(self) -> Self:
        try:
            with anyio.fail_after(_CONNECT_S):
                self._wire = MessageStream(await anyio.connect_tcp(*self._address))
        except GONE as error:
            host, port = self._address
            raise AttemptLost(f"the driver cannot be reached at {host}:{port}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.aclose()

    async def begin(self) -> RangeStart | None:
        """Ask for the range; ``None`` means that it is already done.

        Raises:
            Superseded: it belongs to a newer attempt.
            AttemptLost: the driver is gone.
        """
        answer = await self._ask(self._hello)
        if isinstance(answer, RangeDone):
            return None
        assert isinstance(answer, RangeStart), "the one other answer to a hello"
        self._count, self._last = answer.count, answer.last
        return answer

    def add(self, sst: Sst) -> None:
        """Report a finished SST."""
        self._fresh.append(sst)
        self._news.notify()

    async def report_on(self, progress: JobProgress) -> None:
        """Report each SST at once, and everything else every second, until ``end``.

        Raises:
            Superseded, AttemptLost: see ``begin``.
        """
        read, merged, refused = 0, 0, 0
        while True:
            await self._news.wait_for(_REPORT_S)
            is_last = self._is_ending  # read before the report is built, so that the last report is complete
            now_read, now_merged = progress.read_bytes, progress.merged_bytes
            fresh, self._fresh = self._fresh, []
            expired, folded = self._counts.take()
            now_refused, why = progress.refused_count, progress.why_refused
            await self._ask(
                TaskReport(
                    self._count,
                    tuple(fresh),
                    now_read - read,
                    now_merged - merged,
                    expired,
                    folded,
                    now_refused - refused,
                    why,
                )
            )
            read, merged, refused = now_read, now_merged, now_refused
            if fresh:
                self._count, self._last = self._count + len(fresh), fresh[-1]
            if is_last:
                return

    def end(self) -> None:
        """Let ``report_on`` report what is left, and return."""
        self._is_ending = True
        self._news.notify()

    async def finish(self) -> None:
        """Report that the range is done, after everything was written and reported.

        Raises:
            Superseded, AttemptLost: see ``begin``.
        """
        await self._ask(RangeFinished(self._count, None if self._last is None else self._last.id))

    async def fail(self, error: ShaleError) -> None:
        """Report an error that no other attempt could avoid, and wait for the end of the connection."""
        try:
            await self._wire.send(TaskFailed(encode_error(error)))
        except GONE:
            return
        await self.wait_for_disconnect()

    async def wait_for_disconnect(self) -> None:
        """Wait until the driver disconnects this attempt, or Spark ends it."""
        while True:
            try:
                await self._wire.receive()
            except GONE:
                return

    async def _ask(self, message: Message) -> Message:
        try:
            with anyio.fail_after(_ANSWER_S):
                await self._wire.send(message)
                answer = await self._wire.receive()
        except GONE as error:
            raise AttemptLost("the driver is gone, or disconnected this attempt") from error
        if isinstance(answer, AttemptRefused):
            raise Superseded
        assert isinstance(answer, ReportAccepted | RangeStart | RangeDone), "answers of the driver"
        return answer


class _Counts:
    """The gains of the executor's counters since they were last taken."""

    def __init__(self, metrics: Metrics) -> None:
        expired = "slatedb_compactor_expired_entries_total"
        self._metrics = metrics
        self._names = (
            (expired, {"db": "", "entry_type": "value"}),
            (expired, {"db": "", "entry_type": "merge"}),
            ("slatedb_merge_operator_operands_total", {"db": "", "path": "compact"}),
        )
        self._taken = [0, 0, 0]

    def take(self) -> tuple[tuple[int, int], int]:
        now = [int(self._metrics.registry.get_sample_value(name, labels) or 0) for name, labels in self._names]
        values, operands, folded = (count - taken for count, taken in zip(now, self._taken, strict=True))
        self._taken = now
        return (values, operands), folded
