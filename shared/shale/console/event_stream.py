"""The server-sent events of the console: one state per interval, to a bounded number of clients."""

from collections.abc import Awaitable, Callable

import anyio
from starlette.types import Message, Receive, Scope, Send

from shale.console.source import INTERVAL_S
from shale.service.http.connection import close_at_shutdown

SEND_MAX_S = 15.0
"""A client that reads nothing for so long is left."""
STREAM_MAX_S = 3600.0
"""A stream ends after this time; the page opens a new one."""


class EventStream:
    """An ASGI response that sends events until the client leaves, or may not see them any more."""

    def __init__(
        self,
        state: Callable[[], Awaitable[bytes]],
        headers: list[tuple[bytes, bytes]],
        is_allowed: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self._state = state
        self._headers = headers
        self._is_allowed = is_allowed
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        close_at_shutdown(scope)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
                with anyio.move_on_after(STREAM_MAX_S):
                    await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            self._ended()

    async def _send_all(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last = b""
        while self._is_allowed():
            state = await self._state()
            piece = b": same\n\n" if state == last else b"data: " + state + b"\n\n"
            last = state
            with anyio.move_on_after(SEND_MAX_S) as waiting:
                await send(_body(piece))
            if waiting.cancelled_caught:
                return
            await anyio.sleep(INTERVAL_S)


def _body(piece: bytes) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": True}


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
