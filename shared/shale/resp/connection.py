"""One connection: it receives bytes, executes commands in order, and sends replies.

The transport calls ``data_received`` and the other callbacks; one task executes all complete commands and writes their
replies together.  Reading pauses while too much input is buffered, and execution pauses while the client does not read
its replies, so the memory of a connection is bounded.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

import anyio
import anyio.lowlevel

from shale.concurrency.last_bytes import until_taken
from shale.errors import ShaleError
from shale.resp.backend import Backend
from shale.resp.batch_trace import TIMEOUT, BatchTrace, record_failure
from shale.resp.batch_trace import begin as begin_trace
from shale.resp.errors import DRAINING, INTERNAL_ERROR, TOO_SLOW, error_text
from shale.resp.options import ANSWER_BYTES, BEFORE_AUTH, BLOCKED_S, COMMANDS_AT_ONCE, READ_PAUSE_BYTES
from shale.resp.protocol.encoder import error
from shale.resp.protocol.parser import Parser, ProtocolError
from shale.resp.reply_writer import ReplyWriter
from shale.resp.session import RespCommand, RespSession
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

_REPLY_BYTES = 2 * LARGE_VALUE_BYTES
"""The most that replies take that do not wait for memory."""
log = get_logger("resp")


class Connection(asyncio.Protocol):
    """The protocol of one client; ``run`` is its task, which ``begin`` starts when the transport is connected.

    ``lost`` is called when the transport has ended, which with TLS may be long after ``run``: the client has to agree.
    ``silent_ticks`` counts ticks of the server since the last input, ``busy_ticks`` since the running command started
    (if ``is_running``), ``age_ticks`` since the client has to authenticate, and ``held_ticks`` since ``holds_much``.
    """

    def __init__(
        self,
        backend: Backend,
        table: Mapping[bytes, RespCommand],
        begin: Callable[["Connection"], None],
        lost: Callable[["Connection"], None],
    ) -> None:
        self._begin, self._end = begin, lost
        self._backend = backend
        self._table = table
        self._parser = Parser(BEFORE_AUTH if backend.has_password else backend.options.parser_limits())
        self._session: RespSession
        self._replies: ReplyWriter
        self._waiter: asyncio.Future[None] | None = None
        self._lost = anyio.Event()
        self._is_paused = False
        self._has_ended = False
        """The client has closed its sending side, but may still read."""
        self._counted_bytes = 0
        self._scope: anyio.CancelScope | None = None
        self._commands: list[list[bytes]] = []
        self._done = 0
        """How many of them have a reply."""
        self._trace: BatchTrace | None = None
        self._taken_s = 0.0
        """When they were taken from the parser."""
        self._answers: list[bytes] = []
        """Replies that were not written yet."""
        self.host = ""
        self._answer_bytes = 0
        self.is_running = False
        self.is_refused = False
        self.is_counted = False
        """Whether it is one of the connections of its address."""
        self.silent_ticks = self.busy_ticks = self.age_ticks = self.held_ticks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Create the session and start the task of the connection."""
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._session = RespSession(self._backend, self._table, address)
        self._replies = ReplyWriter(self._backend, self._session, cast("asyncio.Transport", transport))
        self._transport = self._replies.transport
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        """Buffer input and wake the task."""
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
        """Execute the received commands and then close: the client sends nothing more."""
        self._has_ended = True
        self._wake()
        self._transport.ended()
        return self._transport.can_write_eof()  # TLS cannot, and its transport logs a warning for ``True``

    def pause_writing(self) -> None:
        """Stop executing commands: the client does not read its replies."""
        self._replies.pause()

    def resume_writing(self) -> None:
        """Continue executing commands."""
        self._replies.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface of asyncio
        """Cancel the timers of a closed connection."""
        self._lost.set()
        self._wake()
        self._replies.lost()
        self._end(self)

    @property
    def is_waiting_for_input(self) -> bool:
        """Whether no command runs and the connection waits for input."""
        return self._waiter is not None

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a command of which no byte has arrived."""
        return self._waiter is not None and not self._parser.is_inside_command

    @property
    def needs_auth(self) -> bool:
        """Whether the client still has to authenticate."""
        return self._session.access.needs_auth

    @property
    def is_input_overdue(self) -> bool:
        """Whether the connection waits for the rest of a command, or for authentication."""
        return self._waiter is not None and (self._parser.is_inside_command or self._session.access.needs_auth)

    @property
    def holds_much(self) -> bool:
        """Whether a transaction that is not executed yet holds memory that counts (``_count_inflight``)."""
        return self._session.queued.kept_bytes > READ_PAUSE_BYTES and not self.is_refused

    def refuse(self, text: str) -> None:
        """Send an error and nothing more.

        Further input is dropped until the client has read the error or a time limit passes: closing at once would reset
        the connection, and the client would lose the error.
        """
        self.is_refused = True
        self.silent_ticks = 0
        self._transport.write(error(text))
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()

    def end(self) -> None:
        """Flush the written replies and close the connection."""
        self._replies.is_over = True
        self._wake()
        # A transport of asyncio with TLS that is closed twice cannot tell what it has not sent.
        if not self._transport.is_closing():
            self._transport.close()

    def cancel_command(self) -> None:
        """Cancel the running command, because it exceeded its time limit."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Serve the client until the connection closes."""
        try:
            while not self._replies.is_over:
                # One scope for many commands: a scope for each command would cost too much.
                with anyio.CancelScope() as self._scope:
                    await self._serve()
                if self.is_running:
                    self.is_running = False
                    self._session.snapshot = self._session.writes.transaction = None
                    self._session.count_failure(self._commands[self._done], TIMEOUT)
                    self._record_failure()
                    self._done += 1
                    self._answers.append(error(TOO_SLOW.format(self._backend.options.request_timeout_s)))
        finally:
            self._count_inflight(0)
            self._session.rows.reserved.reduce_to(0)
            self._session.queued.reset()
            self._backend.memory.release_values()
            limit_s = self._backend.options.send_timeout_s if self._replies.is_over else 0.0
            await until_taken(self._transport, self._lost, limit_s)

    async def _serve(self) -> None:
        while not self._replies.is_over:
            if self.is_refused:
                await self._leave()
                return
            if self._answers or self._done < len(self._commands):
                await self._answer()
                continue
            needs_auth = self._session.access.needs_auth
            if needs_auth:
                self._parser.limits = BEFORE_AUTH
            try:
                self._commands = self._parser.take(1 if needs_auth else COMMANDS_AT_ONCE)
            except ProtocolError as mistake:
                self._backend.protocol_errors += 1
                self.refuse(f"ERR Protocol error: {mistake}")
                continue
            self._done = 0
            if self._commands:
                self._taken_s = self._backend.latency.now_s()
                continue
            if not self._has_room():
                self.refuse("ERR too many large commands at once; try again later")
            elif self._has_ended or self._backend.is_draining:
                self.end()
            else:
                await self._wait()

    async def _leave(self) -> None:
        """Wait until a refused client disconnects."""
        self._parser = Parser(BEFORE_AUTH)
        self._commands.clear()
        self._answers.clear()
        self._count_inflight(0)
        while not (self._has_ended or self._replies.is_over or self._backend.is_draining):
            await self._wait()
        self.end()

    async def _wait(self) -> None:
        """Wait for the next callback of the transport."""
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
        """Run the parsed commands in order and send their replies together."""
        session = self._session
        trace = self._trace = begin_trace(session, self._commands, self._done)
        if trace is None:
            await self._run_commands()
            goes_on = await self._send()
            self._backend.latency.observe(session.ran, self._taken_s)
        else:
            with trace:
                await self._run_commands()
                goes_on = await self._send()
                if session.failure is not None:
                    trace.fail(session.failure)
            self._backend.latency.observe(session.ran, self._taken_s, trace.trace_id)
        if session.failure is not None:
            self._record_failure()
        if not goes_on or self._done < len(self._commands):
            return
        if not session.access.needs_auth and self._parser.limits is BEFORE_AUTH:
            self._parser.limits = self._backend.options.parser_limits()
        if session.queued.kept_bytes or self._counted_bytes:
            self._count_inflight(self._parser.buffered_bytes + session.queued.kept_bytes)
        if session.is_closing:
            self.end()
        elif self._done == COMMANDS_AT_ONCE:
            await anyio.lowlevel.checkpoint()

    def _record_failure(self) -> None:
        """Make a span of a failure that has none."""
        failure, self._session.failure = self._session.failure, None
        if self._trace is None and failure is not None:
            seconds = self._backend.latency.now_s() - self._taken_s
            record_failure(self._session, self._commands, failure, seconds)

    async def _run_commands(self) -> None:
        """Run commands until all have a reply, or enough reply bytes are buffered."""
        session, commands, answers, size = self._session, self._commands, self._answers, 0
        most, memory = ANSWER_BYTES, self._backend.memory
        if memory.responses.used_bytes:
            most = min(most, memory.piece_bytes())
            if memory.responses.free_bytes < _REPLY_BYTES:  # it may end a connection whose client does not read
                await self._backend.turns.wait()
        execute = session.execute if not self._backend.is_draining else self._refused
        now_s = self._backend.latency.now_s
        turn_s = now_s()
        self.busy_ticks = 0
        self.is_running = True
        while self._done < len(commands) and size <= most:
            if now_s() - turn_s > BLOCKED_S:
                await anyio.lowlevel.checkpoint()
                turn_s = now_s()
            try:
                answer = await execute(commands[self._done])
            except Exception:  # the outermost handler: the client gets an error, the log gets the traceback
                log.error(Event.RESP_COMMAND_FAILED, exc_info=True)  # noqa: G201 - levels belong to events
                session.count_failure(commands[self._done], "internal")
                answer = error(INTERNAL_ERROR)
            answers.append(answer)
            size += len(answer)
            self.busy_ticks = 0
            self._done = self._done + 1 if not session.is_closing else len(commands)
        self._answer_bytes = size
        # Skipped by a cancellation, after which ``run`` still has to reply to the command.
        self.is_running = False

    async def _refused(self, args: list[bytes]) -> bytes:  # noqa: ARG002 - replaces ``execute`` while draining
        self._session.is_closing = True
        return error(DRAINING)

    async def _send(self) -> bool:
        """Send replies, after the writes they confirm are durable; return whether the connection continues."""
        if self._session.writes.pending_durable is not None and not await self._wait_until_durable():
            return False
        answers, self._answers = self._answers, []
        size, self._answer_bytes = self._answer_bytes, 0
        return await self._replies.send(answers, size)

    async def _wait_until_durable(self) -> bool:
        """Wait until the last write is durable; on failure, refuse the client and return ``False``."""
        session, limit_s = self._session, self._backend.options.request_timeout_s
        handle = session.writes.pending_durable
        if handle is None or session.writes.writer.status.durable_seq >= handle.seq:
            session.writes.pending_durable = None
            return True
        try:
            with anyio.fail_after(limit_s):
                await handle.durable()
        except TimeoutError:
            self.refuse(f"TRYAGAIN not durable after {limit_s:g} s; the outcome of the last writes is unknown")
        except ShaleError as failure:
            self.refuse(f"{error_text(failure)}; the outcome of the last writes is unknown")
        else:
            session.writes.pending_durable = None
            return True
        self._backend.failures["other"] += 1  # of some of the commands that are not answered
        session.failure = "not_durable"
        self._answers.clear()
        return False

    def _has_room(self) -> bool:
        """Return whether the buffered part of the next command is within the limits."""
        kept = self._parser.buffered_bytes + self._session.queued.kept_bytes
        if kept > READ_PAUSE_BYTES or self._counted_bytes:
            self._count_inflight(kept)
        return kept <= READ_PAUSE_BYTES or self._backend.inflight_bytes <= self._backend.options.max_inflight_bytes

    def _count_inflight(self, kept_bytes: int) -> None:
        self._backend.inflight_bytes += kept_bytes - self._counted_bytes
        self._counted_bytes = kept_bytes
