"""The driver's end of the connections to the tasks of one job.

Tasks report finished SSTs while they run, so that these are persisted and not written again.  Every attempt has one
connection.  The output of its range decides what the attempt may do; these rules say what happens when either end dies:

- An attempt that ends, or is silent for too long, loses the range.
- An attempt whose range went to a newer one is refused and stays idle until Spark ends it, because its failure would
  count against the task.  If the newer one is lost, the server disconnects the older one, which then fails, so that
  Spark starts another.
"""

import hmac
from collections.abc import Sequence
from typing import Protocol

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from shale.errors import CorruptionError, InvalidRequestError, ShaleError
from shale_spark.compaction.messages import (
    HELLO_BYTES_MAX,
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
from shale_spark.compaction.range_output import RangeOutput
from shale_spark.errors import decode_error

GONE = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    TimeoutError,
    OSError,
)
"""Errors that mean that the other end of a connection is gone."""
SILENCE_S = 60.0
"""Tasks report every second; one that is silent for so long counts as lost."""
_HELLO_S = 10.0


class TaskListener(Protocol):
    """Receives the events of ranges, by their numbers."""

    def started(self, number: int) -> None:
        """Note that an attempt owns the range from now on and begins after the last recorded SST."""
        ...

    def reported(self, number: int, report: TaskReport) -> None:
        """Note the progress of the owner; the SSTs of the report are in order."""
        ...


class TaskServer:
    """Serves the tasks of one job; run ``serve`` in a task group.

    Args:
        outputs: the outputs of the ranges, by number.
        token: the secret of the tasks of this job.
        listener: receives accepted reports.
        silence_s: see ``SILENCE_S``.
    """

    def __init__(
        self,
        outputs: Sequence[RangeOutput],
        token: str,
        listener: TaskListener,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._outputs = outputs
        self._token = token
        self._listener = listener
        self._silence_s = silence_s
        self._refused: list[set[anyio.CancelScope]] = [set() for _ in outputs]
        self._is_over = False
        self._attempts = 0
        self._left = anyio.Event()
        self.failure: ShaleError | None = None
        self.failed = anyio.Event()
        """Set with ``failure``, which no other attempt could avoid."""

    async def serve(self, host: str, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen at a free port, which is the status, until cancelled.

        Raises:
            InvalidRequestError: the host is no address of this machine.
        """
        try:
            listening = await anyio.create_tcp_listener(local_host=host, local_port=0)
        except OSError as error:
            raise InvalidRequestError(
                f"spark.event_host: executors shall report to {host}, and this process cannot listen there: {error}"
            ) from error
        async with listening as listener:
            task_status.started(listener.extra(SocketAttribute.local_port))  # noqa: S610 - this is not Django
            await listener.serve(self._handle)

    def close_to_attempts(self) -> None:
        """Refuse all attempts: the job was lost, or has ended."""
        self._is_over = True

    async def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until no attempt is connected; return whether that was so in time."""
        with anyio.move_on_after(timeout_s):
            while self._attempts:
                self._left = anyio.Event()
                await self._left.wait()
        return not self._attempts

    async def _handle(self, stream: SocketStream) -> None:
        async with stream:
            wire = MessageStream(stream)
            try:
                with anyio.fail_after(_HELLO_S):
                    hello = await wire.receive(HELLO_BYTES_MAX)
            except (*GONE, CorruptionError):
                return  # not one of our tasks: a port scanner, perhaps
            if isinstance(hello, TaskHello) and self._is_ours(hello):
                await self._serve_attempt(wire, hello)

    def _is_ours(self, hello: TaskHello) -> bool:
        is_known = hmac.compare_digest(str(hello.token).encode(), self._token.encode())
        return is_known and hello.range in range(len(self._outputs)) and isinstance(hello.attempt, int)

    async def _serve_attempt(self, wire: MessageStream, hello: TaskHello) -> None:
        """Serve one attempt from its hello to its end."""
        output = self._outputs[hello.range]
        self._attempts += 1
        try:
            if output.is_done:
                await wire.send(RangeDone())
            elif not self._is_over and output.claim(hello.attempt):
                self._listener.started(hello.range)
                await wire.send(RangeStart(len(output.ssts), output.last))
                await self._receive_reports(wire, hello)
            else:
                await self._refuse(wire, hello.range)
        except GONE:
            pass  # Spark notices the end of the task by itself; what the attempt has reported stays
        except CorruptionError as error:
            self._fail(error)
        finally:
            self._attempts -= 1
            self._left.set()
            if output.release(hello.attempt):
                for scope in self._refused[hello.range]:
                    scope.cancel()

    async def _receive_reports(self, wire: MessageStream, hello: TaskHello) -> None:
        while True:
            with anyio.fail_after(self._silence_s):
                message = await wire.receive()
            # An attempt that lost the range may fail for that very reason, so its failure is not the job's.
            if isinstance(message, TaskFailed) and self._outputs[hello.range].owner == hello.attempt:
                self._fail(decode_error(message.error))
            if self._is_over or not self._apply(hello, message):
                await self._refuse(wire, hello.range)
                return
            await wire.send(ReportAccepted())

    def _apply(self, hello: TaskHello, message: Message) -> bool:
        """Apply a report; return ``False`` if the attempt no longer owns the range."""
        output = self._outputs[hello.range]
        if isinstance(message, RangeFinished):
            return output.finish(hello.attempt, message.count, message.last)
        if isinstance(message, TaskReport) and output.add(hello.attempt, message.position, message.ssts):
            self._listener.reported(hello.range, message)
            return True
        return False

    async def _refuse(self, wire: MessageStream, number: int) -> None:
        """Refuse, and wait until the attempt is gone, or must fail."""
        await wire.send(AttemptRefused())
        with anyio.CancelScope() as scope:
            self._refused[number].add(scope)
            try:
                await wire.receive()
            finally:
                self._refused[number].discard(scope)

    def _fail(self, error: ShaleError) -> None:
        self.failure = self.failure or error
        self._is_over = True
        self.failed.set()
