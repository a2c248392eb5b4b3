"""Several commands as one: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

A watched key is remembered by the sequence number of its row.  EXEC runs everything in one transaction of the engine
that has read the watched keys, so nothing comes between looking at them and the commit; when somebody else writes what
it relies on, the transaction is run again, and the watched keys decide again.
"""

from shale.engine.reader_snapshot import ReaderSnapshot
from shale.engine.transaction import Transaction
from shale.resp.commands.command import Command
from shale.resp.encoder import OK, array
from shale.resp.failures import RespError
from shale.resp.session import Session


async def _multi(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    if session.queue is not None:
        raise RespError("ERR MULTI calls can not be nested")
    session.queue = []
    return OK


async def _discard(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    if session.queue is None:
        raise RespError("ERR DISCARD without MULTI")
    session.forget_transaction()
    return OK


async def _exec(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    queue, watched, is_broken = session.queue, session.watched, session.is_broken
    if queue is None:
        raise RespError("ERR EXEC without MULTI")
    session.forget_transaction()
    if is_broken:
        raise RespError("EXECABORT Transaction discarded because of previous errors.")

    async def run(moment: Transaction | ReaderSnapshot) -> bytes:
        for key, seq in watched.items():
            row = await session.live_row(moment, key)
            if (None if row is None else row.seq) != seq:
                return session.wire.null_array
        session.moment = moment
        session.transaction = moment if isinstance(moment, Transaction) else None
        try:
            return await _run_all(session, queue)
        finally:
            session.moment = session.transaction = None

    reader = session.backend.reader
    if reader is None:
        return await session.in_transaction(run)
    async with reader.snapshot() as moment:
        return await run(moment)


async def _run_all(session: Session, queue: list[tuple[Command, list[bytes]]]) -> bytes:
    """The answers of the transaction.

    Raises:
        RespError: they are too large together; a few words can ask for much.
        ShaleError: of the engine, unless a command was wrong.
    """
    answers: list[bytes] = []
    size, most = 0, session.backend.options.max_inflight_bytes
    for command, args in queue:
        answers.append(await session.run(command, args))
        size += len(answers[-1])
        if size > most:
            raise RespError(f"ERR the answers of the transaction are larger than {most} bytes; nothing was written")
    return array(answers)


async def _watch(session: Session, args: list[bytes]) -> bytes:
    if session.queue is not None:
        raise RespError("ERR WATCH inside MULTI is not allowed")
    most = session.backend.options.max_batch_rows
    if len(session.watched) + len(args) > most:
        raise RespError(f"ERR at most {most} keys can be watched")
    for key in args[1:]:
        if key not in session.watched:
            row = await session.live_row(session.db, key)
            session.watched[key] = None if row is None else row.seq
    return OK


async def _unwatch(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    session.watched = {}
    return OK


COMMANDS = (
    Command(name="multi", arity=1, handler=_multi, group="transactions", summary="Begin a transaction.",
            flags=("noscript", "fast"), is_immediate=True),
    Command(name="exec", arity=1, handler=_exec, group="transactions", summary="Run the transaction.",
            flags=("noscript",), is_immediate=True),
    Command(name="discard", arity=1, handler=_discard, group="transactions", summary="Forget the transaction.",
            flags=("noscript", "fast"), is_immediate=True),
    Command(name="watch", arity=-2, handler=_watch, group="transactions",
            summary="Let EXEC do nothing if one of these keys changes.", flags=("noscript", "fast"), keys=(1, -1, 1),
            is_immediate=True),
    Command(name="unwatch", arity=1, handler=_unwatch, group="transactions", summary="Watch nothing any more.",
            flags=("noscript", "fast")),
)  # fmt: skip
