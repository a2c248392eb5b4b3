"""Writes the replies of one connection, no faster than the client reads them."""

import asyncio
from functools import partial

import anyio

from shale.resp.backend import Backend
from shale.resp.options import ANSWER_BYTES
from shale.resp.session import RespSession
from shale.service.memory.counted_transport import CountedTransport
from shale.sst.budget import LARGE_VALUE_BYTES

_WAITING_BYTES = LARGE_VALUE_BYTES + ANSWER_BYTES + 1024
"""Larger replies wait for memory.  Replies to several commands are larger than the last one by so much at most."""


class ReplyWriter:
    """Writes replies to a transport, and counts those that the client has not read as memory of responses.

    Args:
        backend: the memory, the counters and the time limits of the server.
        session: the session whose reserved memory ends with its replies.
        transport: that of the connection; its write buffer pauses this writer.
    """

    def __init__(self, backend: Backend, session: RespSession, transport: asyncio.Transport) -> None:
        self._backend = backend
        self._session = session
        # In a turn of its own: it may be called while the transport writes.
        share = backend.memory.unread.share(partial(asyncio.get_running_loop().call_soon, self._abort))
        self.transport = CountedTransport(transport, share)
        self._may_write: asyncio.Future[None] | None = None
        self.is_over = False
        """Whether the connection has ended or is being closed."""

    def pause(self) -> None:
        """Write no more: the client does not read its replies."""
        self.transport.paused()
        if self._may_write is None:
            self._may_write = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        """Write again."""
        if self.transport.resumed():
            self._wake()

    def lost(self) -> None:
        """Write no more: the connection is lost."""
        self.is_over = True
        self.transport.lost()
        self._wake()

    def _wake(self) -> None:
        waiter, self._may_write = self._may_write, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def send(self, answers: list[bytes], size_bytes: int) -> bool:
        """Write replies, and wait until the client reads them.

        Args:
            answers: the replies, in order.
            size_bytes: their size together.

        Returns:
            Whether the connection continues.
        """
        if self.is_over:
            return False
        if size_bytes > _WAITING_BYTES:
            return await self._send_large(answers, size_bytes)
        # Also a short reply may come from large values, and an error stand for a reply that memory was kept for.
        self._backend.memory.release_values()
        self._session.rows.reserved.reduce_to(0)
        data = answers[0] if len(answers) == 1 else b"".join(answers)
        answers.clear()  # the client may read them late
        self._backend.bytes_written += len(data)
        self.transport.write(data)
        del data
        return await self._is_read()

    async def _send_large(self, answers: list[bytes], size_bytes: int) -> bool:
        """Write large replies in pieces; wait for memory, and before each piece until the client has read the last."""
        self._backend.bytes_written += size_bytes
        with self._backend.memory.large_values.detach() as share:
            with anyio.move_on_after(self._backend.options.request_timeout_s) as scope:
                share.reduce_to(size_bytes)
                if share.size_bytes < size_bytes:
                    # Two clients that each keep a part might wait for each other.
                    share.reduce_to(0)
                    await share.take(size_bytes)
            self._session.rows.reserved.reduce_to(0)
            if scope.cancelled_caught:
                self._abort()
                return False
            await self._send_pieces(answers)
        return not self.is_over

    async def _send_pieces(self, answers: list[bytes]) -> None:
        for answer in answers:
            rest = memoryview(answer)
            while rest and not self.is_over:
                piece, rest = rest[:ANSWER_BYTES], rest[ANSWER_BYTES:]
                self.transport.write(piece if rest else bytes(piece))
                if not await self._is_read():
                    return

    async def _is_read(self) -> bool:
        """Wait until the transport has sent its replies; drop a client that reads nothing of them."""
        while self._may_write is not None and not self.is_over:
            unread_bytes = self.transport.get_write_buffer_size()
            with anyio.move_on_after(self._backend.options.send_timeout_s) as scope:
                await asyncio.shield(self._may_write)
            if scope.cancelled_caught and self.transport.get_write_buffer_size() >= unread_bytes:
                self._abort()
        return not self.is_over

    def _abort(self) -> None:
        self.is_over = True
        self.transport.abort()
