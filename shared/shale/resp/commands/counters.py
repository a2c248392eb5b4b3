"""Counters: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.  A counter keeps its time of expiry."""

from fractions import Fraction

from shale.engine.read.reads import Reads
from shale.resp.arguments import long_double
from shale.resp.arguments.numbers import INT64_MAX, INT64_MIN, whole_number
from shale.resp.command import Command
from shale.resp.commands.rows import put_keeping_expiry
from shale.resp.composed import Writes
from shale.resp.errors import RespError
from shale.resp.protocol.encoder import bulk, integer
from shale.resp.session import RespSession

_NOT_A_FLOAT = "ERR value is not a valid float"


async def _add(session: RespSession, key: bytes, change: int) -> bytes:
    async def add(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.live_row(reads, key)
        total = change if row is None else whole_number(row.value) + change
        if not INT64_MIN <= total <= INT64_MAX:
            raise RespError("ERR increment or decrement would overflow")
        put_keeping_expiry(writes, key, b"%d" % total, row)
        return integer(total)

    return await session.writes.atomically(add)


async def _incr(session: RespSession, args: list[bytes]) -> bytes:
    return await _add(session, args[1], 1)


async def _decr(session: RespSession, args: list[bytes]) -> bytes:
    return await _add(session, args[1], -1)


async def _incrby(session: RespSession, args: list[bytes]) -> bytes:
    return await _add(session, args[1], whole_number(args[2]))


async def _decrby(session: RespSession, args: list[bytes]) -> bytes:
    number = whole_number(args[2])
    if number == INT64_MIN:
        raise RespError("ERR decrement would overflow")
    return await _add(session, args[1], -number)


async def _incrbyfloat(session: RespSession, args: list[bytes]) -> bytes:
    async def add(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.live_row(reads, args[1])
        try:
            numbers = [long_double.parse(b"0" if row is None else row.value), long_double.parse(args[2])]
        except ValueError:
            raise RespError(_NOT_A_FLOAT) from None
        finite = [number for number in numbers if number is not None]
        total = long_double.rounded(sum(finite, Fraction())) if len(finite) == len(numbers) else None
        if total is None:
            raise RespError("ERR increment would produce NaN or Infinity")
        value = long_double.shown(total)
        put_keeping_expiry(writes, args[1], value, row)
        return bulk(value)

    return await session.writes.atomically(add)


_FLAGS = ("write", "denyoom", "fast")
_KEYS = (1, 1, 1)

COMMANDS = (
    Command(name="incr", arity=2, handler=_incr, group="string", summary="Add one.", flags=_FLAGS, keys=_KEYS),
    Command(name="decr", arity=2, handler=_decr, group="string", summary="Subtract one.", flags=_FLAGS, keys=_KEYS),
    Command(name="incrby", arity=3, handler=_incrby, group="string", summary="Add an integer.",
            flags=_FLAGS, keys=_KEYS),
    Command(name="decrby", arity=3, handler=_decrby, group="string", summary="Subtract an integer.",
            flags=_FLAGS, keys=_KEYS),
    Command(name="incrbyfloat", arity=3, handler=_incrbyfloat, group="string",
            summary="Add a floating-point number.", flags=_FLAGS, keys=_KEYS),
)  # fmt: skip
