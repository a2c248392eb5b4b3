"""The response of a scan: a stream of pieces, sent as fast as the client reads."""

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus

import anyio
from starlette.types import Receive, Scope, Send

from shale.api.messages import RawHeader
from shale.api.scan.formats import ScanFormat
from shale.engine.scan.scan import Scan
from shale.errors import ShaleError
from shale.service.http.connection import abort_connection
from shale.service.http.problems import document, problem_from
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

log = get_logger("http")


class ScanStream:
    """Sends a scan; stops when the client disconnects or reads nothing for ``timeout_s`` seconds."""

    def __init__(
        self,
        encoder: ScanFormat,
        first: bytes | memoryview | None,
        rest: AsyncGenerator[bytes | memoryview, None],
        *,
        headers: list[RawHeader],
        timeout_s: float,
    ) -> None:
        self.status_code = int(HTTPStatus.OK)
        self.raw_headers = [
            (b"content-type", encoder.media_type.encode()),
            (b"cache-control", b"no-store"),
            *headers,
        ]
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
        if self._first is not None and not await self._is_sent(send, self._first, more=True):
            return False
        async for piece in self._rest:
            if not await self._is_sent(send, piece, more=True):
                return False
        return await self._is_sent(send, b"", more=False)

    async def _is_sent(self, send: Send, piece: bytes | memoryview, *, more: bool) -> bool:
        with anyio.move_on_after(self._timeout_s) as scope:
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        return not scope.cancelled_caught


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
