"""The response of a scan: a stream of pieces, sent as fast as the client reads."""

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus

import anyio
from starlette.types import Receive, Scope, Send

from shale.api.messages import RawHeader
from shale.api.scan.formats import ScanFormat
from shale.concurrency.byte_budget import ByteShare
from shale.engine.scan.scan import Scan
from shale.errors import ShaleError
from shale.service.http.connection import abort_connection
from shale.service.http.problems import document, problem_from
from shale.service.memory.process_memory import ProcessMemory
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

log = get_logger("http")

STALL_S = 0.05
"""After so many seconds a scan gives up what it has read ahead."""
CONTENDED_S = 5.0
"""A client that reads nothing for so many seconds is dropped if others wait for its memory."""


class ScanSource:
    """A scan that gives up its buffers while the client does not read.

    Args:
        scan: the scan.
        encoder: the format.
        share: the memory of the scan, which it has at first.
        memory: the budgets of the process.
    """

    def __init__(self, scan: Scan, encoder: ScanFormat, share: ByteShare, memory: ProcessMemory) -> None:
        self.encoder = encoder
        self._scan = scan
        self._share = share
        self._memory = memory

    @property
    def is_contended(self) -> bool:
        """Whether others wait for the memory that this one has."""
        memory = self._memory
        holds_value = self.encoder.is_inside_value  # without one, it gave its memory of large values back
        is_scanned_contended = holds_value and memory.scanned_values.is_contended
        return memory.scans.is_contended or memory.responses.is_contended or is_scanned_contended

    def pause(self) -> None:
        """Release what the scan has read ahead; the connection counts what is not sent.

        A value that is sent in part stays in memory, so its share does.
        """
        self._scan.release()
        if not self.encoder.is_inside_value:
            self._share.reduce_to(0)
            self._memory.release_values()

    async def resume(self) -> None:
        """Take memory again before the scan goes on."""
        if not self._share.size_bytes:
            await self._share.take(self._memory.scan_bytes)

    def close(self) -> None:
        """Release all memory."""
        self._share.reduce_to(0)


class ScanStream:
    """Sends a scan; stops when the client disconnects or reads nothing for ``timeout_s`` seconds."""

    def __init__(
        self,
        source: ScanSource,
        first: bytes | memoryview | None,
        rest: AsyncGenerator[bytes | memoryview, None],
        *,
        headers: list[RawHeader],
        timeout_s: float,
    ) -> None:
        self.status_code = int(HTTPStatus.OK)
        self.raw_headers = [
            (b"content-type", source.encoder.media_type.encode()),
            (b"cache-control", b"no-store"),
            *headers,
        ]
        self._source = source
        self._first = first
        self._rest = rest
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole stream."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            try:
                is_taken = await self._send_all(send)
            finally:
                self._source.close()
                with anyio.CancelScope(shield=True):
                    await self._rest.aclose()
            if not is_taken:
                log.warning(Event.HTTP_CLIENT_STALLED, waited_s=self._timeout_s)
                if abort_connection(scope):
                    await (
                        anyio.sleep_forever()
                    )  # until the disconnect of the aborted connection cancels this task group
            tasks.cancel_scope.cancel()

    async def _send_all(self, send: Send) -> bool:
        """Send all pieces; return ``False`` if the client stopped reading."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._first is not None and not await self._is_sent(send, self._first):
            return False
        self._first = None
        async for piece in self._rest:
            is_sent = await self._is_sent(send, piece)
            del piece
            if not is_sent:
                return False
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async def _is_sent(self, send: Send, piece: bytes | memoryview) -> bool:
        """Send a piece and wait until the client has read most of it."""
        source = self._source
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        del piece
        waited_s, wait_s = 0.0, STALL_S
        while waited_s < self._timeout_s:
            with anyio.move_on_after(min(wait_s, self._timeout_s - waited_s)) as scope:
                # The server waits here while its buffer is full.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
            if not scope.cancelled_caught:
                with anyio.move_on_after(self._timeout_s) as scope:
                    await source.resume()
                return not scope.cancelled_caught
            if not waited_s:
                source.pause()
            elif source.is_contended and waited_s >= CONTENDED_S:
                return False
            waited_s += wait_s
            wait_s = 1.0
        return False


async def scan_pieces(
    scan: Scan, encoder: ScanFormat, *, limit: int | None, token: Callable[[bytes], str]
) -> AsyncGenerator[bytes | memoryview, None]:
    """Yield the pieces of a stream and its ending.

    Args:
        scan: the scan to encode.
        encoder: the format.
        limit: the row limit of the scan; a stream that reaches it can be resumed.
        token: makes a resume token for the rows after a key.

    Raises:
        ShaleError: the scan fails before its first row; a later error becomes the ending.
    """
    try:
        async for piece in encoder.pieces(scan):
            yield piece
            del piece  # it shares the memory of a large value, for which the scan may wait next
    except ShaleError as error:
        if encoder.rows == 0:
            raise
        yield encoder.ending({"error": document(problem_from(error))})
        return
    finally:
        scan.close()
    last = encoder.last_key
    resume = token(last) if last is not None and limit is not None and encoder.rows >= limit else None
    yield encoder.ending({"end": True, "rows": encoder.rows, "resume": resume})


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
