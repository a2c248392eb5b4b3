"""HTTP/1.1 messages, read whole."""

import asyncio
from dataclasses import dataclass

HEAD_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response; the body has no transfer encoding any more."""

    first_line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Return a header by its lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def encoded(self, *, keeps_length: bool = False) -> bytes:
        """Return the bytes to send; ``keeps_length``: the answer to a HEAD, which has a length and no body."""
        lines = [self.first_line]
        for name, value in self.headers:
            if name.lower() == b"transfer-encoding" or (name.lower() == b"content-length" and not keeps_length):
                continue
            lines.append(name + b": " + value)
        if not keeps_length:
            lines.append(b"Content-Length: %d" % len(self.body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


async def read_message(source: asyncio.StreamReader, *, has_body: bool = True) -> Message | None:
    """Read one message; ``None`` at the end of the connection."""
    try:
        head = await source.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first_line, *lines = head[:-4].split(b"\r\n")
    headers = tuple((name.strip(), value.strip()) for name, _, value in (line.partition(b":") for line in lines))
    message = Message(first_line, headers, b"")
    if not has_body:
        return message
    if (message.header(b"transfer-encoding") or b"").lower() == b"chunked":
        return Message(first_line, headers, await _read_chunks(source))
    length = int(message.header(b"content-length") or 0)
    return Message(first_line, headers, await source.readexactly(length) if length else b"")


async def _read_chunks(source: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        size = int((await source.readuntil(b"\r\n")).split(b";")[0], 16)
        part = await source.readexactly(size + 2)
        if not size:
            return b"".join(parts)
        parts.append(part[:-2])
