"""Commands on parts of values: APPEND, STRLEN, GETRANGE, SETRANGE, GETBIT, SETBIT.

A row is always written as a whole: a change of one byte of a large value costs its whole length.
"""

from collections.abc import Callable

from shale.engine.read.reads import Reads
from shale.resp.arguments.numbers import whole_number
from shale.resp.command import Command
from shale.resp.commands.rows import put_keeping_expiry, require_length
from shale.resp.composed import Writes
from shale.resp.errors import RespError
from shale.resp.protocol.encoder import bulk, integer
from shale.resp.session import RespSession

_BAD_BIT_OFFSET = "ERR bit offset is not an integer or out of range"
_BAD_BIT = "ERR bit is not an integer or out of range"


async def _value(session: RespSession, key: bytes) -> bytes:
    row = await session.rows.live_row(session.reads, key)
    return b"" if row is None else row.value


async def _change(session: RespSession, key: bytes, changed: Callable[[bytes], tuple[bytes | None, int]]) -> bytes:
    """Replace a value; ``changed`` gets the old one and returns the new one, or ``None`` to keep it, and the answer."""

    async def change(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.live_row(reads, key)
        value, answer = changed(b"" if row is None else row.value)
        if value is not None:
            put_keeping_expiry(writes, key, value, row)
        return integer(answer)

    return await session.writes.atomically(change)


async def _append(session: RespSession, args: list[bytes]) -> bytes:
    def appended(old: bytes) -> tuple[bytes, int]:
        length = len(old) + len(args[2])
        require_length(session, length)
        return old + args[2], length

    return await _change(session, args[1], appended)


async def _strlen(session: RespSession, args: list[bytes]) -> bytes:
    return integer(len(await _value(session, args[1])))


async def _getrange(session: RespSession, args: list[bytes]) -> bytes:
    first, last = whole_number(args[2]), whole_number(args[3])
    row = await session.rows.row_for_reply(
        session.reads, args[1], length_of=lambda value: len(range(len(value))[_part(first, last, len(value))])
    )
    return bulk(b"" if row is None else row.value[_part(first, last, len(row.value))])


def _part(first: int, last: int, length: int) -> slice:
    """Return the part of a value that GETRANGE wants."""
    if last < first < 0:
        return slice(0)
    # As in Redis, an end before the first byte is the first byte.
    start = max(first + length, 0) if first < 0 else first
    return slice(start, (max(last + length, 0) if last < 0 else last) + 1)


async def _setrange(session: RespSession, args: list[bytes]) -> bytes:
    offset, part = whole_number(args[2]), args[3]
    if offset < 0:
        raise RespError("ERR offset is out of range")

    def replaced(old: bytes) -> tuple[bytes | None, int]:
        if not part:
            return None, len(old)
        require_length(session, offset + len(part))
        value = old[:offset].ljust(offset, b"\0") + part + old[offset + len(part) :]
        return value, len(value)

    return await _change(session, args[1], replaced)


async def _getbit(session: RespSession, args: list[bytes]) -> bytes:
    place, bit = _bit_place(session, args[2])
    value = await _value(session, args[1])
    return integer(value[place] >> bit & 1 if place < len(value) else 0)


async def _setbit(session: RespSession, args: list[bytes]) -> bytes:
    place, bit = _bit_place(session, args[2])
    wanted = whole_number(args[3], least=0, most=1, problem=_BAD_BIT)

    def changed(old: bytes) -> tuple[bytes, int]:
        value = bytearray(old.ljust(place + 1, b"\0"))
        before = value[place] >> bit & 1
        value[place] ^= (before ^ wanted) << bit
        return bytes(value), before

    return await _change(session, args[1], changed)


def _bit_place(session: RespSession, text: bytes) -> tuple[int, int]:
    """Return the byte of a bit, and its place from the lowest bit of that byte."""
    most = 8 * session.backend.options.max_value_bytes - 1
    offset = whole_number(text, least=0, most=most, problem=_BAD_BIT_OFFSET)
    return offset >> 3, 7 - (offset & 7)


_WRITE = ("write", "denyoom")
_KEYS = (1, 1, 1)

COMMANDS = (
    Command(name="append", arity=3, handler=_append, group="string", summary="Append to a value.",
            flags=(*_WRITE, "fast"), keys=_KEYS),
    Command(name="strlen", arity=2, handler=_strlen, group="string", summary="Get the length of a value.",
            flags=("readonly", "fast"), keys=_KEYS),
    Command(name="getrange", arity=4, handler=_getrange, group="string", summary="Get a part of a value.",
            flags=("readonly",), keys=_KEYS),
    Command(name="substr", arity=4, handler=_getrange, group="string", summary="Get a part of a value.",
            flags=("readonly",), keys=_KEYS),
    Command(name="setrange", arity=4, handler=_setrange, group="string", summary="Replace a part of a value.",
            flags=_WRITE, keys=_KEYS),
    Command(name="getbit", arity=3, handler=_getbit, group="bitmap", summary="Get a bit of a value.",
            flags=("readonly", "fast"), keys=_KEYS),
    Command(name="setbit", arity=4, handler=_setbit, group="bitmap", summary="Set a bit of a value.",
            flags=_WRITE, keys=_KEYS),
)  # fmt: skip
