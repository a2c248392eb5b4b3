"""Commands on single keys of any type: DEL, EXISTS, TYPE, RENAME, COPY and their variants."""

from collections import Counter
from collections.abc import Iterator

from shale.engine.read.reads import Reads
from shale.resp.command import Command
from shale.resp.commands.connection import require_database
from shale.resp.commands.rows import put_until, require_key_count, value_sizes
from shale.resp.composed import Writes
from shale.resp.errors import SYNTAX, RespError
from shale.resp.protocol.encoder import OK, integer, simple
from shale.resp.session import RespSession


async def _del(session: RespSession, args: list[bytes]) -> bytes:
    keys = list(dict.fromkeys(require_key_count(session, args[1:])))

    async def delete(reads: Reads, writes: Writes) -> bytes:
        sizes = await value_sizes(session, reads, keys)
        present = [key for key, size in zip(keys, sizes, strict=True) if size is not None]
        for key in present:
            writes.delete(key)
        return integer(len(present))

    return await session.writes.atomically(delete)


async def _exists(session: RespSession, args: list[bytes]) -> bytes:
    times = Counter(require_key_count(session, args[1:]))
    sizes = await value_sizes(session, session.reads, list(times))
    return integer(sum([count for count, size in zip(times.values(), sizes, strict=True) if size is not None]))


async def _type(session: RespSession, args: list[bytes]) -> bytes:
    row = await session.rows.live_row(session.reads, args[1])
    return simple("none" if row is None else "string")


async def _move(session: RespSession, source: bytes, target: bytes, *, replaces: bool) -> bool:
    """Rename a key, with its time of expiry; return ``False`` if the new name is taken.

    Raises:
        RespError: there is no such key.
    """
    is_done = False

    async def move(reads: Reads, writes: Writes) -> bytes:
        nonlocal is_done
        row = await session.rows.live_row(reads, source)
        if row is None:
            raise RespError("ERR no such key")
        is_done = replaces or (source != target and await session.rows.live_row(reads, target) is None)
        if is_done and source != target:
            put_until(writes, target, row.value, row.expire_ts)
            writes.delete(source)
        return OK

    await session.writes.atomically(move)
    return is_done


async def _rename(session: RespSession, args: list[bytes]) -> bytes:
    await _move(session, args[1], args[2], replaces=True)
    return OK


async def _renamenx(session: RespSession, args: list[bytes]) -> bytes:
    return integer(await _move(session, args[1], args[2], replaces=False))


async def _copy(session: RespSession, args: list[bytes]) -> bytes:
    replaces = _copy_options(iter(args[3:]))
    source, target = args[1], args[2]
    if source == target:
        raise RespError("ERR source and destination objects are the same")

    async def copy(reads: Reads, writes: Writes) -> bytes:
        row = await session.rows.live_row(reads, source)
        if row is None or not (replaces or await session.rows.live_row(reads, target) is None):
            return integer(0)
        put_until(writes, target, row.value, row.expire_ts)
        return integer(1)

    return await session.writes.atomically(copy)


def _copy_options(words: Iterator[bytes]) -> bool:
    """Parse the options of COPY; return whether it replaces a value."""
    replaces = False
    for word in words:
        match word.upper():
            case b"REPLACE":
                replaces = True
            case b"DB" if (number := next(words, None)) is not None:
                require_database(number)
            case _:
                raise RespError(SYNTAX)
    return replaces


_WRITE_AGAIN = ("write", "denyoom")
"""A value that is written again takes memory, unlike in Redis."""

COMMANDS = (
    Command(name="del", arity=-2, handler=_del, group="generic", summary="Delete keys; returns how many existed.",
            flags=("write",), keys=(1, -1, 1)),
    Command(name="unlink", arity=-2, handler=_del, group="generic", summary="Delete keys; the same as DEL.",
            flags=("write", "fast"), keys=(1, -1, 1)),
    Command(name="exists", arity=-2, handler=_exists, group="generic", summary="Count the keys that exist.",
            flags=("readonly", "fast"), keys=(1, -1, 1)),
    Command(name="touch", arity=-2, handler=_exists, group="generic", summary="Count the keys that exist.",
            flags=("readonly", "fast"), keys=(1, -1, 1)),
    Command(name="type", arity=2, handler=_type, group="generic", summary="Get the type of a key: string or none.",
            flags=("readonly", "fast"), keys=(1, 1, 1)),
    Command(name="rename", arity=3, handler=_rename, group="generic", summary="Rename a key.",
            flags=_WRITE_AGAIN, keys=(1, 2, 1)),
    Command(name="renamenx", arity=3, handler=_renamenx, group="generic",
            summary="Rename a key if the new name is free.", flags=(*_WRITE_AGAIN, "fast"), keys=(1, 2, 1)),
    Command(name="copy", arity=-3, handler=_copy, group="generic", summary="Copy a key.",
            flags=_WRITE_AGAIN, keys=(1, 2, 1)),
)  # fmt: skip
