"""Commands on values: GET, SET, MGET, MSET, DEL, EXISTS."""

from collections import Counter
from functools import partial

from shale.core.lazy_dataclass import dataclass
from shale.core.ttl import NEVER
from shale.engine.read.reads import Reads
from shale.engine.write.batch import WriteBatch
from shale.errors import ResponseTooLarge
from shale.resp.encoder import OK, array, bulk, integer
from shale.resp.errors import SYNTAX, RespError, wrong_arity
from shale.resp.numbers import INT64_MAX, whole_number
from shale.resp.session import Command, RespSession, Writes

_BAD_EXPIRY = "ERR invalid expire time in 'set' command"
_EXPIRY = {b"EX": (1000, True), b"PX": (1, True), b"EXAT": (1000, False), b"PXAT": (1, False)}
"""Milliseconds of one unit, and whether the time is relative to now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions:
    """The options of SET.  ``expire_at`` is in milliseconds since 1970."""

    expire_at: int | None = None
    keeps_ttl: bool = False
    only_absent: bool = False
    only_present: bool = False
    wants_old: bool = False

    @property
    def needs_row(self) -> bool:
        """Whether SET must read the row first."""
        return self.keeps_ttl or self.only_absent or self.only_present or self.wants_old


def set_options(args: list[bytes], now_ms: int) -> SetOptions:
    """Parse the options of SET, in any order.

    Raises:
        RespError: an option is unknown, two options exclude each other, or a time is invalid.
    """
    expire_at: int | None = None
    words: set[bytes] = set()
    rest = iter(args)
    for arg in rest:
        word = arg.upper()
        if word in _EXPIRY:
            number = next(rest, None)
            if number is None or expire_at is not None:
                raise RespError(SYNTAX)
            expire_at = _expire_at(number, word, now_ms)
        elif word in (b"NX", b"XX", b"GET", b"KEEPTTL"):
            words.add(word)
        else:
            raise RespError(SYNTAX)
    if {b"NX", b"XX"} <= words or (expire_at is not None and b"KEEPTTL" in words):
        raise RespError(SYNTAX)
    return SetOptions(
        expire_at=expire_at,
        keeps_ttl=b"KEEPTTL" in words,
        only_absent=b"NX" in words,
        only_present=b"XX" in words,
        wants_old=b"GET" in words,
    )


def _expire_at(text: bytes, word: bytes, now_ms: int) -> int:
    unit_ms, from_now = _EXPIRY[word]
    expire_ms = whole_number(text) * unit_ms
    if expire_ms <= 0 or expire_ms + (now_ms if from_now else 0) > INT64_MAX:
        raise RespError(_BAD_EXPIRY)
    return expire_ms + now_ms if from_now else expire_ms


async def _get(session: RespSession, args: list[bytes]) -> bytes:
    row = await session.live_row(session.reads, args[1])
    return session.encoding.null if row is None else bulk(row.value)


async def _set(session: RespSession, args: list[bytes]) -> bytes:
    if len(args) == 3 and session.transaction is None:
        session.record_write(await session.writer.put(args[1], args[2]))
        return OK
    options = set_options(args[3:], session.backend.env.clock.now_ms())
    if options.needs_row:
        return await session.atomically(partial(_set_by_row, session, (args[1], args[2]), options))
    if session.transaction is None:
        session.record_write(await session.writer.put(args[1], args[2], expire_at=options.expire_at))
    else:
        session.transaction.put(args[1], args[2], expire_at=options.expire_at)
    return OK


async def _set_by_row(
    session: RespSession, pair: tuple[bytes, bytes], options: SetOptions, reads: Reads, writes: Writes
) -> bytes:
    """Execute a SET that depends on the existing row."""
    key, value = pair
    old = await session.live_row(reads, key)
    is_set = not (options.only_absent if old is not None else options.only_present)
    if is_set and options.keeps_ttl and old is not None:
        writes.put(key, value, ttl=NEVER if old.expire_ts is None else None, expire_at=old.expire_ts)
    elif is_set:
        writes.put(key, value, expire_at=options.expire_at)
    if options.wants_old:
        return session.encoding.null if old is None else bulk(old.value)
    return OK if is_set else session.encoding.null


async def _mget(session: RespSession, args: list[bytes]) -> bytes:
    keys = _check_key_count(session, args[1:])
    # Read each key once: a large value requested a thousand times would take a thousand times its memory.
    distinct = list(dict.fromkeys(keys))
    null, most = session.encoding.null, session.backend.options.max_command_bytes
    refusal = f"ERR the values together are larger than {most} bytes; request fewer keys"
    try:
        read = await session.reads.get_many(distinct, hide_expired=True, max_bytes=most)
    except ResponseTooLarge as error:
        raise RespError(refusal) from error
    found = dict(zip(distinct, read, strict=True))
    values = [found[key] for key in keys]
    if sum([len(value) for value in values if value is not None]) > most:
        raise RespError(refusal)
    return array([null if value is None else bulk(value) for value in values])


async def _mset(session: RespSession, args: list[bytes]) -> bytes:
    if len(args) % 2 == 0:
        raise RespError(wrong_arity("mset"))
    keys = _check_key_count(session, args[1::2])
    transaction = session.transaction
    target = WriteBatch(max_key_bytes=session.backend.options.max_key_bytes) if transaction is None else transaction
    for key, value in zip(keys, args[2::2], strict=True):
        target.put(key, value)
    if isinstance(target, WriteBatch):
        session.record_write(await session.writer.write(target))
    return OK


async def _del(session: RespSession, args: list[bytes]) -> bytes:
    keys = list(dict.fromkeys(_check_key_count(session, args[1:])))

    async def delete(reads: Reads, writes: Writes) -> bytes:
        values = await reads.get_many(keys, hide_expired=True)
        present = [key for key, value in zip(keys, values, strict=True) if value is not None]
        for key in present:
            writes.delete(key)
        return integer(len(present))

    return await session.atomically(delete)


async def _exists(session: RespSession, args: list[bytes]) -> bytes:
    times = Counter(_check_key_count(session, args[1:]))
    values = await session.reads.get_many(list(times), hide_expired=True)
    return integer(sum([count for count, value in zip(times.values(), values, strict=True) if value is not None]))


def _check_key_count(session: RespSession, keys: list[bytes]) -> list[bytes]:
    most = session.backend.options.max_batch_rows
    if len(keys) > most:
        raise RespError(f"ERR {len(keys)} keys in one command; the limit is {most}")
    return keys


COMMANDS = (
    Command(name="get", arity=2, handler=_get, group="string", summary="Get the value of a key.",
            flags=("readonly", "fast"), keys=(1, 1, 1)),
    Command(name="set", arity=-3, handler=_set, group="string", summary="Set the value of a key.",
            flags=("write", "denyoom"), keys=(1, 1, 1)),
    Command(name="mget", arity=-2, handler=_mget, group="string", summary="Get many values from one snapshot.",
            flags=("readonly", "fast"), keys=(1, -1, 1)),
    Command(name="mset", arity=-3, handler=_mset, group="string", summary="Set many keys in one commit.",
            flags=("write", "denyoom"), keys=(1, -1, 2)),
    Command(name="del", arity=-2, handler=_del, group="generic", summary="Delete keys; returns how many existed.",
            flags=("write",), keys=(1, -1, 1)),
    Command(name="exists", arity=-2, handler=_exists, group="generic", summary="Count the keys that exist.",
            flags=("readonly", "fast"), keys=(1, -1, 1)),
)  # fmt: skip
