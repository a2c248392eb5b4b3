"""Commands on the whole database: KEYS, DBSIZE, RANDOMKEY, FLUSHDB.

There is no count of keys and no table of them: apart from RANDOMKEY all of these read every row.
"""

import anyio.lowlevel

from shale.engine.read.reads import Reads
from shale.engine.txn.transaction import Transaction
from shale.engine.write.batch import WriteBatch
from shale.errors import ResponseTooLarge
from shale.resp.arguments.glob import literal_prefix, matcher
from shale.resp.audit import audited
from shale.resp.command import Command
from shale.resp.commands.scan import checked_pattern, matching_keys
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
    scan = session.reads.scan(hide_expired=True, cache_blocks=False)
    count = 0
    while (rows := await scan.columns()) is not None:
        count += len(rows)
        await anyio.lowlevel.checkpoint()
    return integer(count)


async def _keys(session: RespSession, args: list[bytes]) -> bytes:
    pattern = checked_pattern(args[1])
    most = min(session.backend.options.max_command_bytes, session.backend.memory.scans.capacity_bytes)
    try:
        return array(await _matching_keys(session, pattern, min(LARGE_VALUE_BYTES, most)))
    except ResponseTooLarge:
        pass
    await session.reserve(_COPIES_OF_REPLY * most)
    try:
        return array(await _matching_keys(session, pattern, most))
    except ResponseTooLarge as error:
        raise RespError(f"ERR the keys together are larger than {most} bytes; use SCAN") from error


async def _matching_keys(session: RespSession, pattern: bytes, most: int) -> list[bytes]:
    """Return the encoded keys that match a pattern.

    Raises:
        ResponseTooLarge: they have more than ``most`` bytes.
    """
    scan = session.reads.scan(prefix=literal_prefix(pattern), hide_expired=True, cache_blocks=False)
    is_match = matcher(pattern)
    found: list[bytes] = []
    size = 0
    while rows := await scan.next_batch(_DELETE_ROWS, bytes_max=LARGE_VALUE_BYTES):
        matching = [bulk(key) for key in await matching_keys([row.key for row in rows], is_match)]
        size += sum(map(len, matching))
        if size > most:
            raise ResponseTooLarge("the keys are too large")
        found += matching
        await anyio.lowlevel.checkpoint()
    return found


async def _randomkey(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    """Choose a key: a random place between two keys moves one of them to its neighbour; at last one of many near it.

    Every key may be chosen; those next to a gap are more often.
    """
    reads, rng = session.reads, session.backend.env.rng
    low, high = await _first_key(reads, None, None), await _first_key(reads, None, None, reverse=True)
    for _ in range(rng.randrange(_RANDOM_STEPS)):
        if low is None or high is None or low >= high:
            break
        place = _between(low, high, rng.getrandbits(8 * _RANDOM_BYTES))
        if rng.getrandbits(1):
            low = await _first_key(reads, place, high)
        else:
            high = await _first_key(reads, low, place, reverse=True)
    near = await _next_keys(reads, (low, high), _NEAR_ROWS, reverse=bool(rng.getrandbits(1)))
    return bulk(rng.choice(near)) if near else session.encoding.null


async def _first_key(reads: Reads, low: bytes | None, high: bytes | None, *, reverse: bool = False) -> bytes | None:
    keys = await _next_keys(reads, (low, high), 1, reverse=reverse)
    return keys[0] if keys else None


async def _next_keys(
    reads: Reads, between: tuple[bytes | None, bytes | None], count: int, *, reverse: bool
) -> list[bytes]:
    """Return keys from the first bound up, or from the second one down, both included."""
    low, high = between
    stop = None if high is None else high + b"\0"
    scan = reads.scan(start=low, stop=stop, reverse=reverse, limit=count, hide_expired=True)
    return [row.key for row in await scan.next_batch(count)]


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
    if session.transaction is not None:
        await _flush_in_transaction(session, session.transaction)
        return OK
    scan = session.db.scan(hide_expired=True, cache_blocks=False)
    while rows := await scan.next_batch(_DELETE_ROWS, bytes_max=_DELETE_BYTES):
        batch = WriteBatch(max_key_bytes=session.backend.options.max_key_bytes)
        for row in rows:
            batch.delete(row.key)
        session.record_write(await session.writer.write(batch))
    return OK


async def _flush_in_transaction(session: RespSession, transaction: Transaction) -> None:
    """Delete all rows with the other writes of the transaction.

    Raises:
        RespError: there are too many; nothing was deleted.
    """
    most = session.backend.options.max_batch_rows
    keys: list[bytes] = []
    scan = transaction.scan(hide_expired=True, cache_blocks=False)
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
