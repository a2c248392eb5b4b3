"""Scans: SCAN with cursors, and SHALE.SCAN with ranges and resume tokens."""

import binascii
from collections.abc import Callable, Iterable

import anyio.lowlevel

from shale.core.lazy_dataclass import dataclass
from shale.resp.arguments.glob import literal_prefix, matcher
from shale.resp.arguments.numbers import whole_number
from shale.resp.command import Command
from shale.resp.commands.scan_memory import scan_memory
from shale.resp.errors import SYNTAX, RespError, unknown_subcommand
from shale.resp.protocol.encoder import array, bulk
from shale.resp.session import RespSession
from shale.sst.budget import LARGE_VALUE_BYTES

COUNT_DEFAULT = 10
LIMIT_DEFAULT = 1000
ANSWER_BYTES = 4 << 20
"""A reply of SHALE.SCAN ends after the row that makes it larger than this."""

PATTERN_BYTES_MAX = 1024
"""Compiling a pattern blocks the server: 5 ms at this limit, minutes for the longest argument."""

_BATCH_ROWS = 256
_MATCHED_BYTES = 32 << 10
"""A pattern is compared with so many bytes of keys before other connections run: 1 ms for most patterns.  A single key
is not divided: one of 64 KiB takes 0.1 s with the worst pattern."""
_COPIES_OF_REPLY = 3
"""The rows, their encodings, and the reply of all."""
RUNS_MAX = 8
"""Rows may grow between two runs, so that the memory for the first is too small for the second."""
_BAD_CURSOR = "ERR invalid cursor"
_UNKNOWN_CURSOR = "ERR unknown cursor: it has expired, or another server process issued it; start again with 0"


async def _scan(session: RespSession, args: list[bytes]) -> bytes:
    cursor = whole_number(args[1], least=0, most=(1 << 64) - 1, problem=_BAD_CURSOR)
    pattern, count, kind = b"*", COUNT_DEFAULT, b"string"
    rest = iter(args[2:])
    for word in rest:
        value = next(rest, None)
        if value is None:
            raise RespError(SYNTAX)
        match word.upper():
            case b"MATCH":
                pattern = value
            case b"COUNT":
                count = whole_number(value)
            case b"TYPE":
                kind = value.lower()
            case _:
                raise RespError(SYNTAX)
    if count < 1:
        raise RespError(SYNTAX)
    checked_pattern(pattern)
    after = session.backend.cursors.find(cursor) if cursor else b""
    if after is None:
        raise RespError(_UNKNOWN_CURSOR)
    async with scan_memory(session):
        keys, last = await _keys_after(session, after, pattern, min(count, session.backend.options.max_batch_rows))
    following = b"0" if last is None else b"%d" % session.backend.cursors.add(last)
    return array([bulk(following), array([bulk(key) for key in keys if kind == b"string"])])


def checked_pattern(pattern: bytes) -> bytes:
    """Return a pattern.

    Raises:
        RespError: it is too long.
    """
    if len(pattern) > PATTERN_BYTES_MAX:
        raise RespError(f"ERR a pattern may have at most {PATTERN_BYTES_MAX} bytes")
    return pattern


def checked_patterns(patterns: list[bytes]) -> list[bytes]:
    """Return the patterns of one command.

    Raises:
        RespError: they are too long together.
    """
    if sum(map(len, patterns)) > PATTERN_BYTES_MAX:
        raise RespError(f"ERR the patterns of one command may have at most {PATTERN_BYTES_MAX} bytes together")
    return patterns


async def matching_keys(keys: Iterable[bytes], is_match: Callable[[bytes], object]) -> list[bytes]:
    """Return the keys that match a pattern; give way to other connections after each part of their bytes."""
    found: list[bytes] = []
    size = 0
    for key in keys:
        if is_match(key):
            found.append(key)
        size += len(key)
        if size > _MATCHED_BYTES:
            size = 0
            await anyio.lowlevel.checkpoint()
    return found


async def _keys_after(
    session: RespSession, after: bytes, pattern: bytes, count: int
) -> tuple[list[bytes], bytes | None]:
    """Read up to ``count`` keys; return the matching ones, and the last key read, or ``None`` at the end."""
    scan = session.reads.scan(
        prefix=literal_prefix(pattern),
        start=after + b"\0" if after else None,
        limit=count,
        hide_expired=True,
        read_ahead_bytes=session.backend.memory.read_ahead_bytes,
    )
    is_match = None if pattern == b"*" else matcher(pattern)
    found: list[bytes] = []
    seen, size, last = 0, 0, None
    while rows := await scan.next_batch(_BATCH_ROWS, bytes_max=LARGE_VALUE_BYTES):
        keys = [row.key for row in rows]
        seen, last = seen + len(keys), keys[-1]
        await anyio.lowlevel.checkpoint()  # rows in memory need no wait, so yield to other connections
        matching = keys if is_match is None else await matching_keys(keys, is_match)
        found += matching
        size += sum(map(len, matching))
        if size > LARGE_VALUE_BYTES:  # fewer keys than COUNT, as the memory of the reply is not counted
            return found, last
    return found, last if seen == count else None


@dataclass(slots=True)
class _Range:
    """The range of SHALE.SCAN."""

    prefix: bytes | None = None
    start: bytes | None = None
    stop: bytes | None = None
    limit: int = LIMIT_DEFAULT
    is_reverse: bool = False

    def resume(self, token: bytes) -> None:
        """Continue after an earlier reply."""
        try:
            key = binascii.unhexlify(token)
        except ValueError:
            raise RespError("ERR RESUME: not a token of SHALE.SCAN") from None
        if self.is_reverse:
            self.stop = key if self.stop is None else min(self.stop, key)
        else:
            self.start = key + b"\0" if self.start is None else max(self.start, key + b"\0")


async def _shale_scan(session: RespSession, args: list[bytes]) -> bytes:
    wanted = _range(args[1:], session.backend.options.max_batch_rows)
    room_bytes, reply_bytes = LARGE_VALUE_BYTES, 0
    for _ in range(RUNS_MAX):
        async with scan_memory(session, reply_bytes):
            parts, size, token = await _read_range(session, wanted, room_bytes)
        if size <= room_bytes:
            return array([session.encoding.null if token is None else bulk(token), array(parts)])
        parts.clear()
        room_bytes, reply_bytes = size, _COPIES_OF_REPLY * size
    raise RespError("TRYAGAIN the rows of the range grew with each attempt")


async def _read_range(session: RespSession, wanted: "_Range", room_bytes: int) -> tuple[list[bytes], int, bytes | None]:
    """Read the rows of one reply.

    Args:
        session: the session of the client.
        wanted: the range.
        room_bytes: the memory for the rows; of more, only the size is measured.

    Returns:
        The encoded keys and values, their size, and the token with which the range continues.
    """
    scan = session.reads.scan(
        prefix=wanted.prefix,
        start=wanted.start,
        stop=wanted.stop,
        reverse=wanted.is_reverse,
        limit=wanted.limit,
        hide_expired=True,
        read_ahead_bytes=session.backend.memory.read_ahead_bytes,
    )
    parts: list[bytes] = []
    size, count, last = 0, 0, b""
    while size <= ANSWER_BYTES and (rows := await scan.next_batch(_BATCH_ROWS, bytes_max=LARGE_VALUE_BYTES)):
        for row in rows:
            size += len(row.key) + len(row.value)
            if size <= room_bytes:
                parts += (bulk(row.key), bulk(row.value))
            count += 1
            last = row.key
            if size > ANSWER_BYTES:
                break
        await anyio.lowlevel.checkpoint()
    is_over = size <= ANSWER_BYTES and count < wanted.limit
    return parts, size, None if is_over else binascii.hexlify(last)


def _range(args: list[bytes], limit_max: int) -> _Range:
    wanted, token = _Range(), None
    rest = iter(args)
    for word in rest:
        if word.upper() == b"REVERSE":
            wanted.is_reverse = True
            continue
        value = next(rest, None)
        if value is None:
            raise RespError(SYNTAX)
        match word.upper():
            case b"PREFIX":
                wanted.prefix = value
            case b"START":
                wanted.start = value
            case b"STOP":
                wanted.stop = value
            case b"LIMIT":
                wanted.limit = whole_number(value, least=1, most=limit_max)
            case b"RESUME":
                token = value
            case _:
                raise unknown_subcommand("shale.scan", word)
    if token is not None:
        wanted.resume(token)
    return wanted


COMMANDS = (
    Command(name="scan", arity=-2, handler=_scan, group="generic", summary="Iterate over keys with a cursor.",
            flags=("readonly",), is_scan=True),
    Command(name="shale.scan", arity=-1, handler=_shale_scan, group="shale",
            summary="Read a range of keys and values in order, with a resume token.", flags=("readonly",),
            is_scan=True),
)  # fmt: skip
