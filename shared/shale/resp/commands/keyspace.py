"""Commands on the whole database: KEYS, DBSIZE, RANDOMKEY, FLUSHDB.

There is no count of keys and no table of them: apart from RANDOMKEY all of these read every row.
"""

import anyio.lowlevel

from shale.engine.txn.transaction import Transaction
from shale.engine.write.batch import WriteBatch
from shale.resp.arguments.glob import literal_prefix, matcher
from shale.resp.audit import audited
from shale.resp.command import Command
from shale.resp.commands.scan import RUNS_MAX, checked_pattern, matching_keys
from shale.resp.commands.scan_memory import scan_memory
from shale.resp.errors import SYNTAX, RespError
from shale.resp.protocol.encoder import OK, array, bulk, integer
from shale.resp.session import RespSession
from shale.sst.budget import LARGE_VALUE_BYTES

_RANDOM_STEPS = 16
"""RANDOMKEY reads less than so many single rows, the first and the last, and the last ones below."""

_NEAR_ROWS = 32
_DELETE_ROWS = 4096
_DELETE_BYTES = 4 << 20
_RANDOM_BYTES = 8
_COPIES_OF_REPLY = 2
"""The keys, and the reply of all."""


async def _dbsize(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    async with scan_memory(session):
        read_ahead_bytes = session.backend.memory.read_ahead_bytes
        scan = session.reads.scan(hide_expired=True, cache_blocks=False, read_ahead_bytes=read_ahead_bytes)
        count = 0
        while (rows := await scan.columns()) is not None:
            count += len(rows)
            await anyio.lowlevel.checkpoint()
    return integer(count)


async def _keys(session: RespSession, args: list[bytes]) -> bytes:
    pattern = checked_pattern(args[1])
    most = min(session.backend.options.max_command_bytes, session.backend.memory.scans.capacity_bytes)
    room_bytes, reply_bytes = LARGE_VALUE_BYTES, 0
    for _ in range(RUNS_MAX):
        async with scan_memory(session, reply_bytes):
            found, size = await _matching_keys(session, pattern, room_bytes, most)
        if size > most:
            raise RespError(f"ERR the keys together are larger than {most} bytes; use SCAN")
        if size <= room_bytes:
            return array(found)
        room_bytes, reply_bytes = size, _COPIES_OF_REPLY * size
    raise RespError("TRYAGAIN the keys grew with each attempt")


async def _matching_keys(session: RespSession, pattern: bytes, room_bytes: int, most: int) -> tuple[list[bytes], int]:
    """Return the encoded keys that match a pattern, and their size; of more than the room, only the size is measured.

    Of more than ``most`` bytes, the size is that of a part.
    """
    scan = session.reads.scan(
        prefix=literal_prefix(pattern),
        hide_expired=True,
        cache_blocks=False,
        read_ahead_bytes=session.backend.memory.read_ahead_bytes,
    )
    is_match = matcher(pattern)
    found: list[bytes] = []
    size = 0
    while size <= most and (rows := await scan.next_batch(_DELETE_ROWS, bytes_max=LARGE_VALUE_BYTES)):
        matching = [bulk(key) for key in await matching_keys([row.key for row in rows], is_match)]
        size += sum(map(len, matching))
        if size <= room_bytes:
            found += matching
        else:
            found.clear()
        await anyio.lowlevel.checkpoint()
    return found, size


async def _randomkey(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    """Choose a key: a random place between two keys moves one of them to its neighbour; at last one of many near it.

    Every key may be chosen; those next to a gap are more often.
    """
    async with scan_memory(session):
        near = await _keys_near(session)
    return bulk(session.backend.env.rng.choice(near)) if near else session.encoding.null


async def _keys_near(session: RespSession) -> list[bytes]:
    """Return the keys next to a random place."""
    rng = session.backend.env.rng
    low, high = await _first_key(session, None, None), await _first_key(session, None, None, reverse=True)
    for _ in range(rng.randrange(_RANDOM_STEPS)):
        if low is None or high is None or low >= high:
            break
        place = _between(low, high, rng.getrandbits(8 * _RANDOM_BYTES))
        if rng.getrandbits(1):
            low = await _first_key(session, place, high)
        else:
            high = await _first_key(session, low, place, reverse=True)
    return await _next_keys(session, (low, high), _NEAR_ROWS, reverse=bool(rng.getrandbits(1)))


async def _first_key(
    session: RespSession, low: bytes | None, high: bytes | None, *, reverse: bool = False
) -> bytes | None:
    keys = await _next_keys(session, (low, high), 1, reverse=reverse)
    return keys[0] if keys else None


async def _next_keys(
    session: RespSession, between: tuple[bytes | None, bytes | None], count: int, *, reverse: bool
) -> list[bytes]:
    """Return keys from the first bound up, or from the second one down, both included."""
    low, high = between
    stop = None if high is None else high + b"\0"
    scan = session.reads.scan(
        start=low,
        stop=stop,
        reverse=reverse,
        limit=count,
        hide_expired=True,
        read_ahead_bytes=session.backend.memory.read_ahead_bytes,
    )
    return [row.key for row in await scan.next_batch(count, bytes_max=LARGE_VALUE_BYTES)]


def _between(first: bytes, last: bytes, number: int) -> bytes:
    """Return a key from ``first`` to ``last``, as far between them as ``number`` is between 0 and its maximum."""
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    low, high = (
        int.from_bytes(key[shared : shared + _RANDOM_BYTES].ljust(_RANDOM_BYTES, b"\0")) for key in (first, last)
    )
    place = low + (high - low) * number // ((1 << 8 * _RANDOM_BYTES) - 1)
    return min(max(first, first[:shared] + place.to_bytes(_RANDOM_BYTES)), last)


async def _flush(session: RespSession, args: list[bytes]) -> bytes:
    if len(args) > 2 or (len(args) == 2 and args[1].upper() not in (b"ASYNC", b"SYNC")):
        raise RespError(SYNTAX)
    if not session.backend.options.allow_flush:
        raise RespError("ERR it would delete every row of the database; the setting resp.allow_flush permits it")
    if session.writes.transaction is not None:  # EXEC has the memory
        await _flush_in_transaction(session, session.writes.transaction)
        return OK
    async with scan_memory(session):
        await _delete_all(session)
    return OK


async def _delete_all(session: RespSession) -> None:
    """Delete all rows, batch by batch."""
    read_ahead_bytes = session.backend.memory.read_ahead_bytes
    scan = session.db.scan(hide_expired=True, cache_blocks=False, read_ahead_bytes=read_ahead_bytes)
    while rows := await scan.next_batch(_DELETE_ROWS, bytes_max=_DELETE_BYTES):
        batch = WriteBatch(max_key_bytes=session.backend.options.max_key_bytes)
        for row in rows:
            batch.delete(row.key)
        session.writes.record_write(await session.writes.writer.write(batch))


async def _flush_in_transaction(session: RespSession, transaction: Transaction) -> None:
    """Delete all rows with the other writes of the transaction.

    Raises:
        RespError: there are too many; nothing was deleted.
    """
    most = session.backend.options.max_batch_rows
    keys: list[bytes] = []
    read_ahead_bytes = session.backend.memory.read_ahead_bytes
    scan = transaction.scan(hide_expired=True, cache_blocks=False, read_ahead_bytes=read_ahead_bytes)
    while rows := await scan.next_batch(_DELETE_ROWS, bytes_max=_DELETE_BYTES):
        keys += [row.key for row in rows]
        if len(keys) > most:
            raise RespError(f"ERR more than {most} keys cannot be deleted in one transaction")
    for key in keys:
        transaction.delete(key)


COMMANDS = (
    Command(name="dbsize", arity=1, handler=_dbsize, group="server", summary="Count all keys; reads every row.",
            flags=("readonly",), is_scan=True),
    Command(name="keys", arity=2, handler=_keys, group="generic",
            summary="Get all keys that match a pattern; reads every row.", flags=("readonly",), is_scan=True),
    Command(name="randomkey", arity=1, handler=_randomkey, group="generic", summary="Get some key.",
            flags=("readonly",), is_scan=True),
    Command(name="flushdb", arity=-1, handler=audited("flushdb", _flush), group="server",
            summary="Delete all rows, batch by batch, if resp.allow_flush permits it.", flags=("write",),
            is_administration=True, is_scan=True),
    Command(name="flushall", arity=-1, handler=audited("flushall", _flush), group="server",
            summary="Delete all rows, batch by batch, if resp.allow_flush permits it.", flags=("write",),
            is_administration=True, is_scan=True),
)  # fmt: skip
