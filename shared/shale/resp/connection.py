"""One connection: bytes in, commands in order, answers out.

The transport calls ``data_received`` and so on; one task takes what came, runs all complete commands, and writes their
answers at once.  While it is busy with more than it likes reading is paused, and while the client does not take its
answers nothing more is run, so a connection costs no more memory than the limits say.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

import anyio
import anyio.lowlevel

from shale.errors import ShaleError
from shale.resp.backend import Backend
from shale.resp.commands.command import Command
from shale.resp.encoder import error
from shale.resp.failures import DRAINING, OUR_MISTAKE, TOO_SLOW, text_of
from shale.resp.limits import BEFORE_AUTH
from shale.resp.parser import Parser, ProtocolError
from shale.resp.session import Session
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

READ_PAUSE_BYTES = 64 * 1024
"""So much that was not run yet stops reading while commands run."""

ANSWER_BYTES = 256 * 1024
"""Answers are written when there are so many bytes of them, and the client must take them before more is run."""

COMMANDS_AT_ONCE = 256
"""After so many commands others have their turn."""

log = get_logger("resp")


class Connection(asyncio.Protocol):
    """Made by the server for each client; ``run`` is its task, which ``begin`` starts once there is a transport.

    ``silent_ticks`` counts ticks of the server since something was received, ``busy_ticks`` since commands are being
    run, if ``is_running``; ``age_ticks`` all of them.
    """

    def __init__(self, backend: Backend, table: Mapping[bytes, Command], begin: Callable[["Connection"], None]) -> None:
        self._begin = begin
        self._backend = backend
        self._table = table
        self._parser = Parser(BEFORE_AUTH if backend.has_password else backend.options.parser_limits())
        self._transport: asyncio.Transport
        self._session: Session
        self._waiter: asyncio.Future[None] | None = None
        self._may_write: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_over = False
        self._has_ended = False
        """The client sends nothing more, but may still read."""
        self._counted_bytes = 0
        self._scope: anyio.CancelScope | None = None
        self._commands: list[list[bytes]] = []
        self._done = 0
        """How many of them have an answer."""
        self._answers: list[bytes] = []
        """What was not written yet."""
        self.is_running = False
        self.is_refused = False
        self.silent_ticks = 0
        self.busy_ticks = 0
        self.age_ticks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=ANSWER_BYTES)
        peer = transport.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._session = Session(self._backend, self._table, address)
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        if self.is_refused:
            return
        self._parser.feed(data)
        self._backend.bytes_read += len(data)
        self.silent_ticks = 0
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        elif not self._is_paused and self._parser.buffered_bytes > READ_PAUSE_BYTES:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client sends nothing more; what it has sent is still answered."""
        self._has_ended = True
        self._wake()
        return True

    def pause_writing(self) -> None:
        """The client does not take its answers."""
        self._may_write = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It does again."""
        waiter, self._may_write = self._may_write, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface of asyncio
        """The client is gone."""
        self._is_over = True
        self._wake()
        self.resume_writing()

    @property
    def is_resting(self) -> bool:
        """Whether it waits for the client, and no command runs."""
        return self._waiter is not None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a command, of which nothing has come."""
        return self._waiter is not None and not self._parser.is_inside_command

    @property
    def is_locked(self) -> bool:
        """Whether the client still has to say the password."""
        return self._session.is_locked

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the client to send something that it owes: the rest of a command, or the password."""
        return self._waiter is not None and (self._parser.is_inside_command or self._session.is_locked)

    def refuse(self, text: str) -> None:
        """Answer with an error, and with nothing more.

        What the client goes on to send is thrown away until it has read that, or the server's patience is over: closing
        at once would reset the connection, and the error would be lost with it.
        """
        self.is_refused = True
        self.silent_ticks = 0
        self._transport.write(error(text))
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._transport.write_eof()

    def end(self) -> None:
        """Send what was written and end the connection."""
        self._is_over = True
        self._wake()
        self._transport.close()

    def give_up(self) -> None:
        """End the command that runs: it waits too long."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Serve until the client has gone, or has to."""
        try:
            while not self._is_over:
                # One scope for many commands, because one for each costs too much.
                with anyio.CancelScope() as self._scope:
                    await self._serve()
                if self.is_running:
                    self.is_running = False
                    self._session.moment = self._session.transaction = None
                    self._done += 1
                    self._answers.append(error(TOO_SLOW.format(self._backend.options.request_timeout_s)))
        finally:
            self._count_inflight(0)
            self._session.forget_transaction()
            if not self._is_over:
                self._transport.abort()

    async def _serve(self) -> None:
        while not self._is_over:
            if self.is_refused:
                await self._leave()
                return
            if self._answers or self._done < len(self._commands):
                await self._answer()
                continue
            try:
                self._commands = self._parser.take(1 if self._session.is_locked else COMMANDS_AT_ONCE)
            except ProtocolError as mistake:
                self._backend.protocol_errors += 1
                self.refuse(f"ERR Protocol error: {mistake}")
                continue
            self._done = 0
            if self._commands:
                continue
            if not self._has_room():
                self.refuse("ERR too many large commands at once; try again later")
            elif self._has_ended or self._backend.is_draining:
                self.end()
            else:
                await self._wait()

    async def _leave(self) -> None:
        """Wait until a refused client has gone."""
        self._parser = Parser(BEFORE_AUTH)
        self._commands.clear()
        self._answers.clear()
        self._count_inflight(0)
        while not (self._has_ended or self._is_over or self._backend.is_draining):
            await self._wait()
        self.end()

    async def _wait(self) -> None:
        """Return when something has happened."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _answer(self) -> None:
        """Run the commands at hand in order; their answers go out together."""
        session = self._session
        await self._run_commands()
        if not await self._send() or self._done < len(self._commands):
            return
        if not session.is_locked and self._parser.limits is BEFORE_AUTH:
            self._parser.limits = self._backend.options.parser_limits()
        if session.queue is not None or self._counted_bytes:
            self._count_inflight(self._parser.buffered_bytes + session.queued_bytes)
        if session.is_closing:
            self.end()
        elif self._done == COMMANDS_AT_ONCE:
            await anyio.lowlevel.checkpoint()

    async def _run_commands(self) -> None:
        """Run commands until all have an answer, or there is enough to write."""
        session, commands, answers, size = self._session, self._commands, self._answers, 0
        execute = session.execute if not self._backend.is_draining else self._refused
        self.busy_ticks = 0
        self.is_running = True
        while self._done < len(commands) and size <= ANSWER_BYTES:
            try:
                answer = await execute(commands[self._done])
            except Exception:  # the edge: the client gets an error, the log the traceback
                log.error(Event.RESP_COMMAND_FAILED, exc_info=True)  # noqa: G201 - levels belong to events
                answer = error(OUR_MISTAKE)
            answers.append(answer)
            size += len(answer)
            self.busy_ticks = 0
            self._done = self._done + 1 if not session.is_closing else len(commands)
        # Not after a cancellation: then it says that a command has no answer yet.
        self.is_running = False

    async def _refused(self, args: list[bytes]) -> bytes:  # noqa: ARG002 - stands for ``execute``
        self._session.is_closing = True
        return error(DRAINING)

    async def _send(self) -> bool:
        """Write answers, if need be when what they tell is durable, and wait until the client takes them.

        Returns:
            Whether the connection goes on.
        """
        if self._session.unsettled is not None and not await self._settled():
            return False
        if self._is_over:
            return False
        answers, self._answers = self._answers, []
        data = answers[0] if len(answers) == 1 else b"".join(answers)
        self._backend.bytes_written += len(data)
        self._transport.write(data)
        if self._may_write is not None:
            with anyio.move_on_after(self._backend.options.request_timeout_s) as scope:
                await self._may_write
            if scope.cancelled_caught:
                self._is_over = True
                self._transport.abort()
        return not self._is_over

    async def _settled(self) -> bool:
        """Wait until what was written is durable; where that fails the connection ends, and false is returned."""
        session, limit_s = self._session, self._backend.options.request_timeout_s
        handle = session.unsettled
        if handle is None or session.writer.durable_seq >= handle.seq:
            session.unsettled = None
            return True
        try:
            with anyio.fail_after(limit_s):
                await handle.durable()
        except TimeoutError:
            self.refuse(f"TRYAGAIN not durable after {limit_s:g} s; the outcome of the last writes is unknown")
        except ShaleError as failure:
            self.refuse(f"{text_of(failure)}; the outcome of the last writes is unknown")
        else:
            session.unsettled = None
            return True
        self._answers.clear()
        return False

    def _has_room(self) -> bool:
        """Whether what has come of the next command may stay in memory."""
        kept = self._parser.buffered_bytes + self._session.queued_bytes
        if kept > READ_PAUSE_BYTES or self._counted_bytes:
            self._count_inflight(kept)
        return kept <= READ_PAUSE_BYTES or self._backend.inflight_bytes <= self._backend.options.max_inflight_bytes

    def _count_inflight(self, kept_bytes: int) -> None:
        self._backend.inflight_bytes += kept_bytes - self._counted_bytes
        self._counted_bytes = kept_bytes
