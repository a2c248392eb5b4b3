"""The driver's end of the connections to the tasks of one job.

Finished SSTs are heard of while their tasks still run, so that they are persisted and not written again.  Every attempt
has one connection.  What it may do is decided by the chain of its range; what happens when either end dies by this:

- An attempt that ends, or says nothing for too long, loses the range.
- An attempt whose range went to a newer one gets no answer but a refusal and stays, doing nothing, until Spark ends
  it: its failure would count against the task.  If the newer one is lost it is let go, and fails, so that Spark starts
  another.
"""

import hmac
from collections.abc import Sequence
from typing import Protocol

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from shale.errors import CorruptionError, InvalidRequestError, ShaleError
from shale_spark.compaction.chain import Chain
from shale_spark.compaction.frames import (
    Accepted,
    Failed,
    Finished,
    Hello,
    Message,
    Over,
    Refused,
    Report,
    Start,
    Wire,
)
from shale_spark.task_errors import decode_error

GONE = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    TimeoutError,
    OSError,
)
"""How the end of a connection looks from the other end."""
SILENCE_S = 60.0
"""Tasks report every second; one that does not for so long is taken for lost."""
_HELLO_S = 10.0


class Listener(Protocol):
    """Hears what happens to ranges, by their numbers."""

    def started(self, number: int) -> None:
        """An attempt owns the range from now on and begins behind the last recorded SST."""
        ...

    def reported(self, number: int, report: Report) -> None:
        """The owner got on; the SSTs of the report are in order."""
        ...


class Channel:
    """Serves the tasks of one job; use ``serve`` in a task group.

    Args:
        chains: of the ranges, by number.
        token: what tasks of this job know.
        listener: told about what is accepted.
        silence_s: see ``SILENCE_S``.
    """

    def __init__(
        self,
        chains: Sequence[Chain],
        token: str,
        listener: Listener,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._chains = chains
        self._token = token
        self._listener = listener
        self._silence_s = silence_s
        self._refused: list[set[anyio.CancelScope]] = [set() for _ in chains]
        self._is_over = False
        self._attempts = 0
        self._left = anyio.Event()
        self.failure: ShaleError | None = None
        self.failed = anyio.Event()
        """Set with ``failure``, which no other attempt could avoid."""

    async def serve(self, host: str, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen at a port of the system's choice, which is the status, until cancelled.

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

    def refuse_all(self) -> None:
        """Let nobody go on: the job is not ours any more, or has ended."""
        self._is_over = True

    async def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until no attempt is connected; tells whether that came true in time."""
        with anyio.move_on_after(timeout_s):
            while self._attempts:
                self._left = anyio.Event()
                await self._left.wait()
        return not self._attempts

    async def _handle(self, stream: SocketStream) -> None:
        async with stream:
            wire = Wire(stream)
            try:
                with anyio.fail_after(_HELLO_S):
                    hello = await wire.receive()
            except (*GONE, CorruptionError):
                return  # nobody who knows the token: a scanner of ports, perhaps
            if isinstance(hello, Hello) and self._is_ours(hello):
                await self._attend(wire, hello)

    def _is_ours(self, hello: Hello) -> bool:
        is_known = hmac.compare_digest(str(hello.token).encode(), self._token.encode())
        return is_known and hello.range in range(len(self._chains)) and isinstance(hello.attempt, int)

    async def _attend(self, wire: Wire, hello: Hello) -> None:
        """One attempt from its hello to its end."""
        chain = self._chains[hello.range]
        self._attempts += 1
        try:
            if chain.is_done:
                await wire.send(Over())
            elif not self._is_over and chain.hello(hello.attempt):
                self._listener.started(hello.range)
                await wire.send(Start(len(chain.ssts), chain.last))
                await self._hear(wire, hello)
            else:
                await self._hold(wire, hello.range)
        except GONE:
            pass  # Spark knows, or will find out; what the attempt has reported stays
        except CorruptionError as error:
            self._fail(error)
        finally:
            self._attempts -= 1
            self._left.set()
            if chain.leave(hello.attempt):
                for scope in self._refused[hello.range]:
                    scope.cancel()

    async def _hear(self, wire: Wire, hello: Hello) -> None:
        while True:
            with anyio.fail_after(self._silence_s):
                message = await wire.receive()
            # Whoever has lost the range may have lost more than that: its trouble is not the job's.
            if isinstance(message, Failed) and self._chains[hello.range].owner == hello.attempt:
                self._fail(decode_error(message.error))
            if self._is_over or not self._accept(hello, message):
                await self._hold(wire, hello.range)
                return
            await wire.send(Accepted())

    def _accept(self, hello: Hello, message: Message) -> bool:
        """Take a report in; ``False``: from somebody whose range it is not, or who has given up."""
        chain = self._chains[hello.range]
        if isinstance(message, Finished):
            return chain.finish(hello.attempt, message.count, message.last)
        if isinstance(message, Report) and chain.add(hello.attempt, message.position, message.ssts):
            self._listener.reported(hello.range, message)
            return True
        return False

    async def _hold(self, wire: Wire, number: int) -> None:
        """Refuse, and wait until the attempt is gone, or is needed to fail."""
        await wire.send(Refused())
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
