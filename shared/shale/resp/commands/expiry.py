"""When keys expire: EXPIRE, TTL and their variants, PERSIST.

The time of expiry is that of the row, in milliseconds.  A new time writes the row again, with its value.
"""

from functools import partial

from shale.engine.read.reads import Reads
from shale.resp.arguments.numbers import expiry_ms
from shale.resp.command import Command
from shale.resp.commands.rows import put_until
from shale.resp.composed import Writes
from shale.resp.errors import RespError, shown
from shale.resp.protocol.encoder import integer
from shale.resp.session import Handler, RespCommand, RespSession

_ABSENT, _FOREVER = -2, -1
_FLAGS = ("write", "denyoom", "fast")
"""Different from Redis, a new time of expiry takes memory."""
_CONDITIONS = frozenset((b"NX", b"XX", b"GT", b"LT"))


def _conditions(args: list[bytes]) -> frozenset[bytes]:
    """Parse the options of EXPIRE.

    Raises:
        RespError: an option is unknown, or two exclude each other.
    """
    for arg in args:
        if arg.upper() not in _CONDITIONS:
            raise RespError(f"ERR Unsupported option {shown(arg)}")
    words = frozenset(map(bytes.upper, args))
    if b"NX" in words and len(words) > 1:
        raise RespError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"GT", b"LT"} <= words:
        raise RespError("ERR GT and LT options at the same time are not compatible")
    return words


def _is_allowed(words: frozenset[bytes], old: int | None, new: int) -> bool:
    """Return whether the conditions allow a new time of expiry; no time counts as an infinite one."""
    if old is None:
        return not words & {b"XX", b"GT"}
    return not (
        b"NX" in words or (b"GT" in words and new <= old) or (b"LT" in words and new >= old)
    )  # fmt: skip


def _expire(name: str, unit_ms: int, *, is_relative: bool) -> Handler:
    """Return EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT."""

    async def handle(session: RespSession, args: list[bytes]) -> bytes:
        words = _conditions(args[3:])
        now_ms = session.backend.env.clock.now_ms()
        expire_at = expiry_ms(args[2], unit_ms, now_ms if is_relative else 0, name)

        async def change(reads: Reads, writes: Writes) -> bytes:
            row = await session.rows.live_row(reads, args[1])
            if row is None or not _is_allowed(words, row.expire_ts, expire_at):
                return integer(0)
            if expire_at <= now_ms:
                writes.delete(args[1])
            else:
                put_until(writes, args[1], row.value, expire_at)
            return integer(1)

        return await session.writes.atomically(change)

    return handle


async def _persist(session: RespSession, args: list[bytes]) -> bytes:
    async def change(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.live_row(reads, args[1])
        if row is None or row.expire_ts is None:
            return integer(0)
        put_until(writes, args[1], row.value, None)
        return integer(1)

    return await session.writes.atomically(change)


async def _time_left(session: RespSession, args: list[bytes], *, unit_ms: int, is_relative: bool) -> bytes:
    """Execute TTL, PTTL, EXPIRETIME or PEXPIRETIME; whole units are rounded to the nearest."""
    row = await session.rows.live_row(session.reads, args[1])
    if row is None or row.expire_ts is None:
        return integer(_ABSENT if row is None else _FOREVER)
    since_ms = session.backend.env.clock.now_ms() if is_relative else 0
    return integer((max(row.expire_ts - since_ms, 0) + unit_ms // 2) // unit_ms)


def _writing(name: str, unit_ms: int, summary: str, *, is_relative: bool) -> RespCommand:
    handler = _expire(name, unit_ms, is_relative=is_relative)
    return Command(name=name, arity=-3, handler=handler, group="generic", summary=summary,
                   flags=_FLAGS, keys=(1, 1, 1))  # fmt: skip


def _reading(name: str, unit_ms: int, summary: str, *, is_relative: bool) -> RespCommand:
    handler = partial(_time_left, unit_ms=unit_ms, is_relative=is_relative)
    return Command(name=name, arity=2, handler=handler, group="generic", summary=summary,
                   flags=("readonly", "fast"), keys=(1, 1, 1))  # fmt: skip


COMMANDS = (
    _writing("expire", 1000, "Let a key expire after seconds.", is_relative=True),
    _writing("pexpire", 1, "Let a key expire after milliseconds.", is_relative=True),
    _writing("expireat", 1000, "Let a key expire at a time in seconds.", is_relative=False),
    _writing("pexpireat", 1, "Let a key expire at a time in milliseconds.", is_relative=False),
    Command(name="persist", arity=2, handler=_persist, group="generic", summary="Let a key not expire.",
            flags=_FLAGS, keys=(1, 1, 1)),
    _reading("ttl", 1000, "Get the seconds until a key expires.", is_relative=True),
    _reading("pttl", 1, "Get the milliseconds until a key expires.", is_relative=True),
    _reading("expiretime", 1000, "Get when a key expires, in seconds.", is_relative=False),
    _reading("pexpiretime", 1, "Get when a key expires, in milliseconds.", is_relative=False),
)  # fmt: skip
