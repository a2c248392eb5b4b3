"""The memory of commands that scan."""

import contextlib
from collections.abc import AsyncIterator

from shale.resp.session import RespSession


@contextlib.asynccontextmanager
async def scan_memory(session: RespSession, reply_bytes: int = 0) -> AsyncIterator[None]:
    """Wait for the memory of a scan and of its reply; that of the reply is kept until it is sent.

    Both are taken at once: two clients that each keep a part might wait for each other.
    """
    await session.rows.reserve(session.backend.memory.scan_bytes + reply_bytes)
    try:
        yield
    finally:
        if session.snapshot is None:  # within EXEC the next command needs it
            session.rows.reserved.reduce_to(reply_bytes)
