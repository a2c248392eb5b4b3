"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

WATCH remembers the sequence number of each row.  EXEC checks the watched keys and runs all commands in one serializable
transaction of the engine, so no other write can come between the check and the commit.  After a conflict the
transaction runs again and checks the watched keys again.
"""

from collections.abc import Awaitable, Callable

import anyio.lowlevel

from shale.engine.reader.snapshot import ReaderSnapshot
from shale.engine.txn.transaction import Transaction
from shale.resp.command import Command
from shale.resp.errors import RespError
from shale.resp.options import COMMANDS_AT_ONCE
from shale.resp.protocol.encoder import OK, array
from shale.resp.session import RespCommand, RespSession

_COPIES_OF_REPLY = 3
"""The replies, and the reply of all; as many as its largest command takes, so that the second run does not wait."""
_RUNS_MAX = 8
"""Values may grow between two runs of a transaction, so that the memory of the first is too small for the second."""


class _NoRoomError(Exception):
    """A transaction needs memory for its replies, and has to run again."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


async def _multi(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    if session.queued.commands is not None:
        raise RespError("ERR MULTI calls can not be nested")
    session.queued.commands = []
    return OK


async def _discard(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    if session.queued.commands is None:
        raise RespError("ERR DISCARD without MULTI")
    session.queued.reset()
    return OK


async def _exec(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    queue, watched, is_aborted = session.queued.commands, session.queued.watched, session.queued.is_aborted
    if queue is None:
        raise RespError("ERR EXEC without MULTI")
    session.queued.reset()
    if is_aborted:
        raise RespError("EXECABORT Transaction discarded because of previous errors.")

    memory = session.backend.memory
    room_bytes = memory.unsized_reply_bytes

    async def run(snapshot: Transaction | ReaderSnapshot) -> bytes:
        for key, seq in watched.items():
            row = await session.rows.live_row(snapshot, key)
            if (None if row is None else row.seq) != seq:
                return session.encoding.null_array
        session.snapshot = snapshot
        session.writes.transaction = snapshot if isinstance(snapshot, Transaction) else None
        session.writes.composed.close()  # of an attempt that conflicted
        try:
            return await _run_all(session, queue, room_bytes)
        finally:
            session.snapshot = session.writes.transaction = None

    scan_bytes = memory.scan_bytes if any(command.is_scan for command, _ in queue) else 0
    await session.rows.reserve(scan_bytes)
    for _ in range(_RUNS_MAX):
        try:
            return await _run_once(session, run)
        except _NoRoomError as found:
            # Nothing is kept during the wait: two clients that each keep a part might wait for each other.
            room_bytes = found.size_bytes
            session.writes.composed.close()
            await session.rows.reserve(scan_bytes + _COPIES_OF_REPLY * room_bytes)
        finally:
            session.writes.composed.close()  # after the commit, which may wait for memory of its own
    raise RespError("TRYAGAIN the replies of the transaction grew with each attempt; nothing was written")


async def _run_once(session: RespSession, run: Callable[[Transaction | ReaderSnapshot], Awaitable[bytes]]) -> bytes:
    reader = session.backend.reader
    if reader is None:
        return await session.writes.in_transaction(run)
    async with reader.snapshot() as snapshot:
        return await run(snapshot)


async def _run_all(session: RespSession, queue: list[tuple[RespCommand, list[bytes]]], room_bytes: int) -> bytes:
    """Run the queued commands and return their replies.

    Raises:
        _NoRoomError: the replies are larger than the memory for them; they were dropped, and only measured.
        RespError: the replies or the written values together are too large.
        ShaleError: the engine fails; errors of the client become replies instead.
    """
    answers: list[bytes] = []
    size, most = 0, session.backend.options.max_inflight_bytes
    replies_max = min(most, session.backend.memory.responses.capacity_bytes)
    for number, (command, args) in enumerate(queue, 1):
        if number % COMMANDS_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        answer = await session.run(command, args)
        size += len(answer)
        if size <= room_bytes:
            answers.append(answer)
        else:
            answers.clear()
        answer = b""  # the next command may wait
        if size > replies_max:
            raise RespError(
                f"ERR the replies of the transaction are larger than {replies_max} bytes; nothing was written"
            )
        if session.writes.composed.size_bytes > most:
            raise RespError(f"ERR the values of the transaction are larger than {most} bytes; nothing was written")
        if session.backend.composed.size_bytes > most:
            raise RespError("TRYAGAIN the values of running transactions need too much memory; nothing was written")
    if size > room_bytes:
        raise _NoRoomError(size)
    return array(answers)


async def _watch(session: RespSession, args: list[bytes]) -> bytes:
    if session.queued.commands is not None:
        raise RespError("ERR WATCH inside MULTI is not allowed")
    for key in session.queued.add_watched(args[1:]):
        row = await session.rows.live_row(session.db, key)
        session.queued.watched[key] = None if row is None else row.seq
    return OK


async def _unwatch(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    session.queued.unwatch()
    return OK


COMMANDS = (
    Command(name="multi", arity=1, handler=_multi, group="transactions", summary="Start a transaction.",
            flags=("noscript", "fast"), is_immediate=True),
    Command(name="exec", arity=1, handler=_exec, group="transactions", summary="Execute the transaction.",
            flags=("noscript",), is_immediate=True),
    Command(name="discard", arity=1, handler=_discard, group="transactions", summary="Discard the transaction.",
            flags=("noscript", "fast"), is_immediate=True),
    Command(name="watch", arity=-2, handler=_watch, group="transactions",
            summary="Abort EXEC if one of these keys changes.", flags=("noscript", "fast"), keys=(1, -1, 1),
            is_immediate=True),
    Command(name="unwatch", arity=1, handler=_unwatch, group="transactions", summary="Stop watching all keys.",
            flags=("noscript", "fast")),
)  # fmt: skip
