"""Commands on whole values: GET, SET, MGET, MSET and their variants."""

import contextlib
from functools import partial

from shale.engine.read.reads import Reads
from shale.engine.write.batch import WriteBatch
from shale.errors import ResponseTooLarge
from shale.resp.arguments.numbers import positive_expiry_ms
from shale.resp.command import Command
from shale.resp.commands.rows import put_keeping_expiry, put_until, require_key_count, value_sizes
from shale.resp.commands.set_options import SetOptions, getex_options, set_options
from shale.resp.composed import Writes
from shale.resp.errors import RespError, wrong_arity
from shale.resp.protocol.encoder import OK, array, bulk, integer
from shale.resp.session import Handler, RespSession

_COPIES_OF_REPLY = 3
"""The values, their encodings, and the reply of all."""
_RUNS_MAX = 8
"""Values may grow after they were measured, so that the memory for them is too small."""
_TOO_LARGE = "ERR the values together are larger than {} bytes; request fewer keys"


async def _get(session: RespSession, args: list[bytes]) -> bytes:
    row = await session.rows.row_for_reply(session.reads, args[1])
    return session.encoding.null if row is None else bulk(row.value)


async def _set(session: RespSession, args: list[bytes]) -> bytes:
    if len(args) == 3 and session.writes.transaction is None:
        session.writes.record_write(await session.writes.writer.put(args[1], args[2]))
        return OK
    options = set_options(args[3:], session.backend.env.clock.now_ms())
    if options.needs_row:
        return await session.writes.atomically(partial(_set_by_row, session, (args[1], args[2]), options))
    await _put(session, args[1], args[2], options.expire_at)
    return OK


async def _put(session: RespSession, key: bytes, value: bytes, expire_at: int | None) -> None:
    """Write without reading."""
    if session.writes.transaction is None:
        session.writes.record_write(await session.writes.writer.put(key, value, expire_at=expire_at))
    else:
        session.writes.transaction.put(key, value, expire_at=expire_at)


async def _set_by_row(
    session: RespSession, pair: tuple[bytes, bytes], options: SetOptions, reads: Reads, writes: Writes
) -> bytes:
    """Execute a SET that depends on the existing row."""
    key, value = pair
    old = await (session.rows.row_for_reply if options.wants_old else session.rows.live_row)(reads, key)
    is_set = not (options.only_absent if old is not None else options.only_present)
    if is_set and options.keeps_ttl:
        put_keeping_expiry(writes, key, value, old)
    elif is_set:
        writes.put(key, value, expire_at=options.expire_at)
    if options.wants_old:
        return session.encoding.null if old is None else bulk(old.value)
    return OK if is_set else session.encoding.null


def _setex(name: str, unit_ms: int) -> Handler:
    """Return SETEX or PSETEX."""

    async def handle(session: RespSession, args: list[bytes]) -> bytes:
        expire_at = positive_expiry_ms(args[2], unit_ms, session.backend.env.clock.now_ms(), name)
        await _put(session, args[1], args[3], expire_at)
        return OK

    return handle


async def _setnx(session: RespSession, args: list[bytes]) -> bytes:
    async def set_absent(reads: Reads, writes: Writes) -> bytes:
        if await session.rows.live_row(reads, args[1]) is not None:
            return integer(0)
        writes.put(args[1], args[2])
        return integer(1)

    return await session.writes.atomically(set_absent)


async def _getset(session: RespSession, args: list[bytes]) -> bytes:
    options = SetOptions(wants_old=True)
    return await session.writes.atomically(partial(_set_by_row, session, (args[1], args[2]), options))


async def _getdel(session: RespSession, args: list[bytes]) -> bytes:
    async def take(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.row_for_reply(reads, args[1])
        if row is None:
            return session.encoding.null
        writes.delete(args[1])
        return bulk(row.value)

    return await session.writes.atomically(take)


async def _getex(session: RespSession, args: list[bytes]) -> bytes:
    now_ms = session.backend.env.clock.now_ms()
    expiry, is_forever = getex_options(args[2:])

    async def read_and_renew(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.row_for_reply(reads, args[1])
        if row is None:
            return session.encoding.null
        expire_at = None if expiry is None else expiry.at_ms(now_ms, "getex")
        if expire_at is not None and expire_at <= now_ms:
            writes.delete(args[1])
        elif expire_at is not None or (is_forever and row.expire_ts is not None):
            put_until(writes, args[1], row.value, expire_at)
        return bulk(row.value)

    return await session.writes.atomically(read_and_renew)


async def _mget(session: RespSession, args: list[bytes]) -> bytes:
    keys = require_key_count(session, args[1:])
    # Read each key once: a large value requested a thousand times would take a thousand times its memory.
    distinct = list(dict.fromkeys(keys))
    options, memory = session.backend.options, session.backend.memory
    most = min(options.max_command_bytes, memory.responses.capacity_bytes)
    many = partial(_many, session, keys, distinct)
    with contextlib.suppress(ResponseTooLarge):
        return await memory.read_unsized(lambda room_bytes: many(min(room_bytes, most)))
    for _ in range(_RUNS_MAX):
        try:
            sizes = dict(zip(distinct, await value_sizes(session, session.reads, distinct, most=most), strict=True))
        except ResponseTooLarge as error:
            raise RespError(_TOO_LARGE.format(most)) from error
        room_bytes = sum([sizes[key] or 0 for key in keys])
        if room_bytes > most:
            raise RespError(_TOO_LARGE.format(most))
        await session.rows.reserve(_COPIES_OF_REPLY * room_bytes)
        with contextlib.suppress(ResponseTooLarge):
            return await many(room_bytes)
    raise RespError("TRYAGAIN the values grew with each attempt")


async def _many(session: RespSession, keys: list[bytes], distinct: list[bytes], most: int) -> bytes:
    """Return the reply with the values of many keys.

    Raises:
        ResponseTooLarge: they have more than ``most`` bytes.
    """
    read = await session.reads.get_many(distinct, hide_expired=True, max_bytes=most)
    found = dict(zip(distinct, read, strict=True))
    values = [found[key] for key in keys]
    if sum([len(value) for value in values if value is not None]) > most:
        raise ResponseTooLarge("the values are too large")
    null = session.encoding.null
    return array([null if value is None else bulk(value) for value in values])


async def _mset(session: RespSession, args: list[bytes]) -> bytes:
    keys = _keys_of_pairs(session, args)
    transaction = session.writes.transaction
    target = WriteBatch(max_key_bytes=session.backend.options.max_key_bytes) if transaction is None else transaction
    for key, value in zip(keys, args[2::2], strict=True):
        target.put(key, value)
    if isinstance(target, WriteBatch):
        session.writes.record_write(await session.writes.writer.write(target))
    return OK


async def _msetnx(session: RespSession, args: list[bytes]) -> bytes:
    keys = _keys_of_pairs(session, args)

    async def set_all_absent(reads: Reads, writes: Writes) -> bytes:
        sizes = await value_sizes(session, reads, list(dict.fromkeys(keys)))
        if any([size is not None for size in sizes]):  # noqa: C419 - faster
            return integer(0)
        for key, value in zip(keys, args[2::2], strict=True):
            writes.put(key, value)
        return integer(1)

    return await session.writes.atomically(set_all_absent)


def _keys_of_pairs(session: RespSession, args: list[bytes]) -> list[bytes]:
    if len(args) % 2 == 0:
        raise RespError(wrong_arity(args[0].decode(errors="replace").lower()))
    return require_key_count(session, args[1::2])


_ONE_KEY = (1, 1, 1)
_WRITE = ("write", "denyoom")

COMMANDS = (
    Command(name="get", arity=2, handler=_get, group="string", summary="Get the value of a key.",
            flags=("readonly", "fast"), keys=_ONE_KEY),
    Command(name="set", arity=-3, handler=_set, group="string", summary="Set the value of a key.",
            flags=_WRITE, keys=_ONE_KEY),
    Command(name="setnx", arity=3, handler=_setnx, group="string", summary="Set the value of a key that is absent.",
            flags=(*_WRITE, "fast"), keys=_ONE_KEY),
    Command(name="setex", arity=4, handler=_setex("setex", 1000), group="string",
            summary="Set a value and its lifetime in seconds.", flags=_WRITE, keys=_ONE_KEY),
    Command(name="psetex", arity=4, handler=_setex("psetex", 1), group="string",
            summary="Set a value and its lifetime in milliseconds.", flags=_WRITE, keys=_ONE_KEY),
    Command(name="getset", arity=3, handler=_getset, group="string", summary="Set a value and get the old one.",
            flags=(*_WRITE, "fast"), keys=_ONE_KEY),
    Command(name="getdel", arity=2, handler=_getdel, group="string", summary="Get a value and delete it.",
            flags=("write", "fast"), keys=_ONE_KEY),
    Command(name="getex", arity=-2, handler=_getex, group="string", summary="Get a value and set when it expires.",
            flags=(*_WRITE, "fast"), keys=_ONE_KEY),
    Command(name="mget", arity=-2, handler=_mget, group="string", summary="Get many values from one snapshot.",
            flags=("readonly", "fast"), keys=(1, -1, 1)),
    Command(name="mset", arity=-3, handler=_mset, group="string", summary="Set many keys in one commit.",
            flags=_WRITE, keys=(1, -1, 2)),
    Command(name="msetnx", arity=-3, handler=_msetnx, group="string", summary="Set many keys if all are absent.",
            flags=_WRITE, keys=(1, -1, 2)),
)  # fmt: skip
