"""The end of a connection whose peer may never read its last bytes."""

import asyncio

import anyio


async def until_taken(transport: asyncio.Transport, lost: anyio.Event, limit_s: float) -> None:
    """Wait until the peer has what was sent before the transport was closed; a silent one would keep the socket.

    Args:
        transport: is closing, unless ``limit_s`` is 0.
        lost: set when the connection is lost.
        limit_s: after so many seconds the transport is aborted; 0: now.
    """
    if limit_s and not transport.get_write_buffer_size():
        return
    try:
        with anyio.move_on_after(limit_s):
            await lost.wait()
    finally:
        transport.abort()
