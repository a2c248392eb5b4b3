"""What commands that read before they write have in common."""

import contextlib
from collections.abc import AsyncIterator

from shale.core.ttl import NEVER
from shale.engine.read.reads import Reads
from shale.errors import ResponseTooLarge
from shale.resp.composed import Writes
from shale.resp.errors import TOO_LONG, RespError
from shale.resp.session import RespSession
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.types import Row

_KEYS_FIRST, _KEYS_MAX = 16, 4096
"""Keys of one batch of ``value_sizes``: the size of the values is unknown at first."""


def put_keeping_expiry(writes: Writes, key: bytes, value: bytes, old: Row | None) -> None:
    """Write a value that expires when the old row would have; without one, by the default of the database."""
    if old is None:
        writes.put(key, value)
    else:
        put_until(writes, key, value, old.expire_ts)


def put_until(writes: Writes, key: bytes, value: bytes, expire_ts: int | None) -> None:
    """Write a value that expires at a time, or never, whatever the default of the database is."""
    writes.put(key, value, ttl=NEVER if expire_ts is None else None, expire_at=expire_ts)


def require_length(session: RespSession, length: int) -> None:
    """Check the length of a value that a command composes.

    Raises:
        RespError: a client could not have sent it.
    """
    if length > session.backend.options.max_value_bytes:
        raise RespError(TOO_LONG)


def require_key_count(session: RespSession, keys: list[bytes]) -> list[bytes]:
    """Return the keys of one command.

    Raises:
        RespError: there are too many.
    """
    most = session.backend.options.max_batch_rows
    if len(keys) > most:
        raise RespError(f"ERR {len(keys)} keys in one command; the limit is {most}")
    return keys


async def value_sizes(
    session: RespSession, reads: Reads, keys: list[bytes], *, most: int | None = None
) -> list[int | None]:
    """Return the length of the value of each key, ``None`` if it has none; all as of one moment.

    Of the values, only those of one batch are in memory.

    Args:
        session: the session of the client.
        reads: where to read.
        keys: each once.
        most: limit of all values together.

    Raises:
        ResponseTooLarge: the values are larger; the rest was not read.
    """
    if len(keys) <= _KEYS_FIRST:
        with contextlib.suppress(ResponseTooLarge):
            return await _sizes_of_batch(session, reads, keys)
    sizes: list[int | None] = []
    total, count = 0, _KEYS_FIRST if len(keys) > _KEYS_FIRST else 1
    async with _one_state(session, reads) as state:
        while len(sizes) < len(keys):
            try:
                found = await _sizes_of_batch(session, state, keys[len(sizes) : len(sizes) + count])
            except ResponseTooLarge:
                count = 1
                continue
            sizes += found
            size = sum(filter(None, found))
            total += size
            if most is not None and total > most:
                raise ResponseTooLarge("the values are too large")
            if 4 * size <= LARGE_VALUE_BYTES:
                count = min(4 * count, _KEYS_MAX)
    return sizes


async def _sizes_of_batch(session: RespSession, reads: Reads, keys: list[bytes]) -> list[int | None]:
    """Return the sizes of values that are read together.

    Raises:
        ResponseTooLarge: they are several, and larger than one large value.
    """
    if len(keys) == 1:
        values = await reads.get_many(keys, hide_expired=True)
    else:
        memory = session.backend.memory
        values = await memory.read_unsized(lambda most: reads.get_many(keys, hide_expired=True, max_bytes=most))
    return [None if value is None else len(value) for value in values]


@contextlib.asynccontextmanager
async def _one_state(session: RespSession, reads: Reads) -> AsyncIterator[Reads]:
    """Yield reads of one state: those of a transaction are, those of a database are not."""
    database = session.backend.writer or session.backend.reader
    if database is None or reads is not database:
        yield reads
        return
    async with database.snapshot() as snapshot:
        yield snapshot
