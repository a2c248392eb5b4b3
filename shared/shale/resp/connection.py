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

    ``silent_ticks`` counts ticks of the server since something was received.
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
        self.silent_ticks = 0

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
    def is_waiting(self) -> bool:
        """Whether it waits for the client to send something that it owes: the rest of a command, or the password."""
        return self._waiter is not None and (self._parser.is_inside_command or self._session.is_locked)

    def refuse(self, text: str) -> None:
        """Answer with an error and end the connection."""
        self._transport.write(error(text))
        self.end()

    def end(self) -> None:
        """Send what was written and end the connection."""
        self._is_over = True
        self._wake()
        self._transport.close()

    async def run(self) -> None:
        """Serve until the client has gone, or has to."""
        try:
            while not self._is_over:
                try:
                    commands = self._parser.take(1 if self._session.is_locked else COMMANDS_AT_ONCE)
                except ProtocolError as mistake:
                    self._backend.protocol_errors += 1
                    self.refuse(f"ERR Protocol error: {mistake}")
                    break
                if commands:
                    await self._answer(commands)
                elif not self._has_room():
                    self.refuse("ERR too many large commands at once; try again later")
                elif self._has_ended or self._backend.is_draining:
                    self.end()
                else:
                    await self._wait()
        finally:
            self._count_inflight(0)
            self._session.forget_transaction()
            if not self._is_over:
                self._transport.abort()

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

    async def _answer(self, commands: list[list[bytes]]) -> None:
        """Run commands in order; their answers go out together."""
        session = self._session
        was_locked = session.is_locked
        done = 0
        while done < len(commands) and not session.is_closing and not self._is_over:
            answers: list[bytes] = []
            done += await self._run_some(commands[done:] if done else commands, answers)
            if not await self._send(answers):
                return
        if was_locked and not session.is_locked:
            self._parser.limits = self._backend.options.parser_limits()
        if session.queue is not None or self._counted_bytes:
            self._count_inflight(self._parser.buffered_bytes + session.queued_bytes)
        if session.is_closing:
            self.end()
        elif len(commands) == COMMANDS_AT_ONCE:
            await anyio.lowlevel.checkpoint()

    async def _run_some(self, commands: list[list[bytes]], answers: list[bytes]) -> int:
        """Run commands until there is enough to write; returns how many, each with its answer."""
        session, backend = self._session, self._backend
        execute, size = session.execute, 0
        limit_s = backend.options.request_timeout_s
        with anyio.move_on_after(limit_s) as scope:
            for args in commands:
                if backend.is_draining:
                    answer = error(DRAINING)
                    session.is_closing = True
                else:
                    try:
                        answer = await execute(args)
                    except Exception:
                        log.error(Event.RESP_COMMAND_FAILED, exc_info=True)  # noqa: G201 - levels belong to events
                        answer = error(OUR_MISTAKE)
                answers.append(answer)
                size += len(answer)
                if size > ANSWER_BYTES or session.is_closing:
                    break
        if scope.cancelled_caught:
            session.transaction = None
            answers.append(error(TOO_SLOW.format(limit_s)))
        return len(answers)

    async def _send(self, answers: list[bytes]) -> bool:
        """Write answers, if need be when what they tell is durable, and wait until the client takes them.

        Returns:
            Whether the connection goes on.
        """
        session, limit_s = self._session, self._backend.options.request_timeout_s
        handle, session.unsettled = session.unsettled, None
        if handle is not None and session.db.durable_seq < handle.seq:
            try:
                with anyio.fail_after(limit_s):
                    await handle.durable()
            except TimeoutError:
                self.refuse(f"TRYAGAIN not durable after {limit_s:g} s; the outcome of the last writes is unknown")
                return False
            except ShaleError as failure:
                self.refuse(f"{text_of(failure)}; the outcome of the last writes is unknown")
                return False
        if self._is_over:
            return False
        data = answers[0] if len(answers) == 1 else b"".join(answers)
        self._backend.bytes_written += len(data)
        self._transport.write(data)
        if self._may_write is not None:
            with anyio.move_on_after(limit_s) as scope:
                await self._may_write
            if scope.cancelled_caught:
                self._is_over = True
                self._transport.abort()
        return not self._is_over

    def _has_room(self) -> bool:
        """Whether what has come of the next command may stay in memory."""
        kept = self._parser.buffered_bytes + self._session.queued_bytes
        if kept > READ_PAUSE_BYTES or self._counted_bytes:
            self._count_inflight(kept)
        return kept <= READ_PAUSE_BYTES or self._backend.inflight_bytes <= self._backend.options.max_inflight_bytes

    def _count_inflight(self, kept_bytes: int) -> None:
        self._backend.inflight_bytes += kept_bytes - self._counted_bytes
        self._counted_bytes = kept_bytes
