"""Forwards requests to an S3 server, and injects what the rules choose."""

import asyncio
import contextlib
import time

from tests.soak.proxy.messages import Message, read_message
from tests.soak.proxy.rules import Rules

ERROR = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>'
OLD_S = (0.5, 3.0)
"""How old a list may be."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """One proxy; connections to the server are kept."""

    def __init__(self, host: str, port: int, rules: Rules) -> None:
        self._server = (host, port)
        self._rules = rules
        self._idle: list[Connection] = []
        self._lists: dict[bytes, list[tuple[float, Message]]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self.requests = 0

    async def serve(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while (request := await read_message(source)) is not None:
                self.requests += 1
                if not await self._answer(request, sink):
                    break
        sink.transport.abort()

    async def _answer(self, request: Message, sink: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection goes on."""
        method, target, _ = request.first_line.split(b" ", 2)
        action = self._rules.choose(method.decode(), target.decode())
        if action in ("error", "slow-down"):
            sink.write(_error(action == "slow-down", method == b"HEAD"))
            await sink.drain()
            return True
        if action == "reset-before":
            return False
        if action == "stall":
            await asyncio.sleep(self._rules.stall_s())
        if action == "duplicate":
            self._send_later(request)
        response = await self._forward(request, method)
        if response is None or action == "reset-after":
            return False
        if method == b"GET" and b"list-type=2" in target:
            response = self._list(target, response, is_old=action == "old-list")
        data = response.encoded(keeps_length=method == b"HEAD")
        if action == "truncated" and response.body:
            sink.write(data[: len(data) - max(1, len(response.body) // 2)])
            await sink.drain()
            return False
        sink.write(data)
        await sink.drain()
        return True

    def _list(self, target: bytes, response: Message, *, is_old: bool) -> Message:
        """Remember a list, and return an older one of the same request if that is wanted."""
        now = time.monotonic()
        known = [each for each in self._lists.get(target, []) if now - each[0] <= OLD_S[1]]
        self._lists[target] = [*known, (now, response)][-20:]
        old = [each for at, each in known if now - at >= OLD_S[0]]
        return old[0] if is_old and old else response

    def _send_later(self, request: Message) -> None:
        async def send() -> None:
            await asyncio.sleep(self._rules.duplicate_s())
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(request, request.first_line.split(b" ", 1)[0])

        task = asyncio.create_task(send())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _forward(self, request: Message, method: bytes) -> Message | None:
        """Send a request to the server; ``None`` if the server does not answer."""
        for is_retry in (False, True):
            is_new = is_retry or not self._idle
            try:
                connection = await asyncio.open_connection(*self._server) if is_new else self._idle.pop()
            except OSError:
                return None
            source, sink = connection
            try:
                sink.write(request.encoded())
                await sink.drain()
                response = await read_message(source, has_body=method != b"HEAD")
            except (OSError, asyncio.IncompleteReadError):
                response = None
            if response is not None:
                if (response.header(b"connection") or b"").lower() == b"close":
                    sink.close()
                else:
                    self._idle.append(connection)
                return response
            sink.close()
            if is_new or method not in (b"GET", b"HEAD"):
                return None
        return None


def _error(is_slow_down: bool, is_head: bool) -> bytes:
    body = ERROR % (b"SlowDown" if is_slow_down else b"InternalError")
    line = b"HTTP/1.1 503 Slow Down" if is_slow_down else b"HTTP/1.1 500 Internal Server Error"
    message = Message(line, ((b"Content-Type", b"application/xml"),), b"" if is_head else body)
    return message.encoded()
