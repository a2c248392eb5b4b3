"""A transport whose writes count as unread until their last byte is sent."""

import asyncio
from contextlib import suppress
from typing import Any

from shale.service.memory.unread_responses import UnreadShare

SMALL_BYTES = 16 << 10
"""A transport joins smaller writes, and keeps at most so many bytes of them before it pauses its protocol."""
TLS_PIECE_BYTES = 16 << 10
BELOW_TLS_BYTES = 64 << 10
"""What the transport below TLS has at most before TLS pauses."""


class CountedTransport(asyncio.Transport):
    """The transport of a connection; its protocol calls ``paused``, ``resumed``, ``ended`` and ``lost``.

    A transport keeps the whole buffer of a write until its last byte is sent.  By itself it pauses its protocol only
    for more than 64 KiB, and lets it resume with 16 KiB left: a client that leaves so little of each response would
    keep a mebibyte that nothing counts.  TLS passes all that it gets on to a transport below it, whose buffer cannot be
    seen, until that one has 64 KiB.  So it gets large writes in pieces, and what is below counts while it is paused.

    Args:
        transport: of the connection.
        share: what the client has not read; ``None``: it is not counted.
    """

    def __init__(self, transport: asyncio.Transport, share: UnreadShare | None) -> None:
        super().__init__()
        self._transport = transport
        self._share = share
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._below_bytes = BELOW_TLS_BYTES if self._is_tls else 0
        self._large_bytes = 0
        """The size of a large write whose last byte is not sent."""
        self._rest = memoryview(b"")
        """What TLS has not got of it."""
        self._closes = False
        transport.set_write_buffer_limits(high=SMALL_BYTES, low=0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write; if bytes of a large write are left, the protocol is paused until the last one is sent."""
        size_bytes = len(data)
        if size_bytes <= SMALL_BYTES and not self._rest:
            self._transport.write(data)
        elif self._is_tls:
            self._large_bytes = len(self._rest) + size_bytes
            self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
            self._write_pieces()
        else:
            self._transport.write(data)
            if self._transport.get_write_buffer_size():
                self._large_bytes = size_bytes
                self._transport.set_write_buffer_limits(high=0)
                self.paused()

    def paused(self) -> None:
        """Count what is not sent, because the transport has paused its protocol."""
        self._count(max(self._large_bytes, self._transport.get_write_buffer_size()) + self._below_bytes)

    def resumed(self) -> bool:
        """Write on, because the transport lets its protocol resume; return whether the protocol may write, too."""
        if self._rest:
            self._write_pieces()
        if self._transport.get_write_buffer_size():
            return False
        self._large_bytes = 0
        self._transport.set_write_buffer_limits(high=SMALL_BYTES, low=0)
        self._count(0)
        if self._closes and not self._transport.is_closing():
            self._transport.close()
        return True

    def ended(self) -> None:
        """Pass all that is left on to TLS, because the peer has ended its side: TLS takes nothing later."""
        rest, self._rest = self._rest, memoryview(b"")
        if rest:
            self._transport.write(rest)

    def lost(self) -> None:
        """Drop what is left, and count nothing from now on, because the connection is lost."""
        self._rest = memoryview(b"")
        self._count(0)
        self._share = None

    def close(self) -> None:
        """Close the connection after its last byte is sent."""
        self._closes = True
        if not self._rest:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._rest = memoryview(b"")
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or is being closed."""
        return self._closes or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent."""
        return len(self._rest) + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known about the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive nothing more."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        """Return whether the end of what is written can be told: not with TLS."""
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        """Tell the peer of the end after the last byte."""
        with suppress(OSError):  # the peer has reset the connection, which asyncio has not seen yet
            self._transport.write_eof()

    def _write_pieces(self) -> None:
        """Write pieces until the transport pauses its protocol."""
        # Not 0 before it is written: TLS pauses its protocol already if its buffer has as much as the mark.
        self._transport.set_write_buffer_limits(high=SMALL_BYTES, low=0)
        while self._rest:
            piece, self._rest = self._rest[:TLS_PIECE_BYTES], self._rest[TLS_PIECE_BYTES:]
            self._transport.write(piece)
            if self._transport.get_write_buffer_size():
                break
        if not self._rest:
            self._rest = memoryview(b"")  # an empty part keeps the whole buffer
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0)
        else:
            self._large_bytes = 0

    def _count(self, size_bytes: int) -> None:
        if self._share is not None:
            self._share.count(size_bytes)
