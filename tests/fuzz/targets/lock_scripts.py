"""Scripts of lock libraries: a script that is recognized does what Lua and Redis do with it.

Scripts are changed token by token, too.  Most of the changed ones are refused; the others must mean what they say.
"""

import random
import re
from contextlib import AsyncExitStack
from typing import Any

import msgpack

from shale.resp.commands.command_table import WRITER_COMMANDS
from shale.resp.scripts.lock_scripts import ScriptCache, _scripts
from shale.resp.session import RespSession
from tests.fuzz import loop, lua
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target
from tests.unit.resp.harness import Harness, RespFailure, decode_one, harness

_CALLS_MAX = 500
"""After so many, the database is a new one: each call adds versions of the same keys."""
_INT64_MAX = (1 << 63) - 1
_WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_KEYS_AND_ARGS_MAX = 12
_KEYS = (b"a", b"b", b"c")
_TOKENS = (b"me", b"you", b"", b"me:1", b"me:2", b"\xff")
_ARGS = (
    *(*_TOKENS, b"100", b"1", b"0", b"-1", b"2", b"60000", b"yes", b"no", b"5 ", b"01", b"1.5", b"0x10", b""),
    *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775", b"9" * 30, b"nan"),
)
_PIECE = re.compile(rb"\"[^\"]*\"|'[^']*'|\w+|\s+|==|~=|.", re.DOTALL)
_PIECES = (
    *(b"KEYS[1]", b"ARGV[1]", b"ARGV[2]", b"1", b"0", b"2", b"-", b"'get'", b"'del'", b"'PX'", b"'NX'", b"'px'"),
    *(b"(", b")", b"not", b"==", b"~=", b"and", b"or", b" else ", b" end ", b" return ", b";", b"-- x\n", b"t", b"key"),
    *(b"local t = ", b"nil", b"false", b"redis.call", b"redis.pcall", b'"', b"'", b"[", b",", b"\n", b"EX", b"'EX'"),
)


class _Redis:
    """The commands that scripts of locks use, on keys with a value and a time of expiry."""

    def __init__(self, rows: dict[bytes, tuple[bytes, int | None]], now_ms: int) -> None:
        self.rows = dict(rows)
        self._now_ms = now_ms

    def __call__(self, args: list[bytes]) -> Any:
        name = args[0].lower() if args else b""
        wanted = {b"get": 2, b"exists": 2, b"pttl": 2, b"pexpire": 3, b"expire": 3, b"getrange": 4}.get(name)
        if wanted is not None and len(args) != wanted:
            raise lua.ScriptError("wrong number of arguments")
        row = self.rows.get(args[1]) if len(args) > 1 else None
        match name, args[1:]:
            case b"get", [_]:
                return False if row is None else row[0]
            case b"exists", [_]:
                return float(row is not None)
            case b"pttl", [_]:
                return -2.0 if row is None else -1.0 if row[1] is None else float(row[1] - self._now_ms)
            case ((b"del" | b"unlink"), [_, *_]):
                return float(sum(self.rows.pop(key, None) is not None for key in args[1:]))
            case ((b"pexpire" | b"expire"), [key, text]):
                return self._expire(key, text, 1000 if name == b"expire" else 1)
            case b"getrange", [_, start, end]:
                first, last = _integer(start), _integer(end)
                if first != 0 or last < 0:
                    raise lua.Unsupported
                return b"" if row is None else row[0][: last + 1]
            case b"set", [key, value, *options]:
                return self._set(key, value, [each.upper() for each in options])
        raise lua.Unsupported

    def _expire(self, key: bytes, text: bytes, unit_ms: int) -> float:
        at_ms = self._now_ms + _integer(text) * unit_ms
        if not -_INT64_MAX <= at_ms <= _INT64_MAX:
            raise lua.ScriptError("invalid expire time")
        if key not in self.rows:
            return 0.0
        if at_ms <= self._now_ms:
            del self.rows[key]
        else:
            self.rows[key] = self.rows[key][0], at_ms
        return 1.0

    def _set(self, key: bytes, value: bytes, options: list[bytes]) -> Any:
        expire_ms, is_absent = None, False
        while options:
            match options.pop(0):
                case b"NX":
                    is_absent = True
                case (b"PX" | b"EX") as option if options:
                    length = _integer(options.pop(0)) * (1000 if option == b"EX" else 1)
                    if not 0 < length <= _INT64_MAX - self._now_ms:
                        raise lua.ScriptError("invalid expire time")
                    expire_ms = self._now_ms + length
                case _:
                    raise lua.Unsupported
        if is_absent and key in self.rows:
            return False
        self.rows[key] = value, expire_ms
        return {b"ok": b"OK"}


def _integer(text: bytes) -> int:
    if _WHOLE.fullmatch(text) is None or not -_INT64_MAX - 1 <= int(text) <= _INT64_MAX:
        raise lua.ScriptError("value is not an integer or out of range")
    return int(text)


def _reply(value: Any) -> Any:
    """Return a value of Lua as clients see it."""
    if value is None or value is False:
        return None
    if isinstance(value, dict):
        return value[b"ok"].decode()
    if isinstance(value, list):
        return [_reply(each) for each in value[: value.index(None) if None in value else None]]
    return int(value) if isinstance(value, float | bool) else value


def _call(data: bytes) -> None:
    """The input: a script, keys, arguments, and the rows before the call."""
    try:
        script, keys, args, rows = msgpack.unpackb(data)
        start = {key: (value, expire_ms) for key, value, expire_ms in rows}
        words = [script, *keys, *args]
        is_valid = all(isinstance(word, bytes) for word in [*words, *start, *(value for value, _ in start.values())])
        is_valid &= all(time is None or (type(time) is int and 0 < time < 1 << 40) for _, time in start.values())
        if not is_valid or len(words) > _KEYS_AND_ARGS_MAX or not all([*keys, *start]):
            return
    except (ValueError, TypeError, msgpack.UnpackException):
        return
    if ScriptCache().add(script) is not None:
        loop.run(_compared(script, list(keys), list(args), start))


class _Database:
    """A database, which is a new one from time to time."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._home: Harness | None = None
        self._calls = 0

    async def get(self) -> Harness:
        if self._home is None or self._calls >= _CALLS_MAX:
            await self._stack.aclose()
            self._home, self._calls = await self._stack.enter_async_context(harness()), 0
        self._calls += 1
        return self._home


_DATABASE = _Database()


async def _compared(
    script: bytes, keys: list[bytes], args: list[bytes], start: dict[bytes, tuple[bytes, int | None]]
) -> None:
    home = await _DATABASE.get()
    session = RespSession(home.backend, WRITER_COMMANDS)
    now_ms = home.clock.now_ms()
    before = {key: (value, None if left is None else now_ms + left) for key, (value, left) in start.items()}
    touched = sorted({*keys, *before})
    batch = home.db.new_batch()
    for key in touched:
        if key in before:
            batch.put(key, before[key][0], expire_at=before[key][1])
        else:
            batch.delete(key)
    await home.db.write(batch)
    words = [b"%d" % len(keys), *keys, *args]
    if len(script) % 2:
        encoded = await session.execute([b"EVAL", script, *words])
    else:
        digest, _ = decode_one(await session.execute([b"SCRIPT", b"LOAD", script]))
        encoded = await session.execute([b"EVALSHA", digest, *words])
    found, rest = decode_one(encoded)
    if rest:
        raise Difference(f"an answer that is no reply: {encoded[:100]!r}")
    rows = [await home.db.get_row(key) for key in touched]
    after = {row.key: (row.value, row.expire_ts) for row in rows if row is not None}
    if isinstance(found, RespFailure):
        require_equal("rows before and after a script that fails", after, before)
        return
    redis = _Redis(before, now_ms)
    try:
        wanted = _reply(lua.run(script, keys, args, redis))
    except lua.Unsupported:
        return
    except lua.ScriptError as error:
        raise Difference(f"a script that fails in Redis gives {found!r}: {error}") from error
    require_equal("the answer of a script", found, wanted)
    require_equal("the rows after a script", after, redis.rows)


def _seeds() -> list[bytes]:
    rng = random.Random(1)
    texts = [text.encode() for text, _ in _scripts()]
    return [_packed(text, *_arguments(rng)) for text in texts]


def _arguments(rng: random.Random) -> tuple[list[bytes], list[bytes], list[list[Any]]]:
    token = rng.choice(_TOKENS)
    keys = [rng.choice(_KEYS) for _ in range(rng.choice((1, 1, 2, 3)))]
    length = rng.choice((b"100", b"5", rng.choice(_ARGS)))
    args = [token, length, rng.choice((b"0", b"1", b"yes", b"100", rng.choice(_ARGS)))]
    times = (None, 1, 50, 10_000)
    rows = [[key, rng.choice((token, rng.choice(_TOKENS))), rng.choice(times)] for key in _KEYS if rng.random() < 0.5]
    return keys, args[: rng.choice((3, 3, 3, 2, 1))], rows


def _packed(script: bytes, keys: list[bytes], args: list[bytes], rows: list[list[Any]]) -> bytes:
    return bytes(msgpack.packb([script, keys, args, rows]) or b"")


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Make other keys, arguments and rows, or change a token of the script."""
    try:
        script, keys, args, rows = msgpack.unpackb(data)
        if rng.random() < 0.6:
            return _packed(script, *_arguments(rng))
        pieces = _PIECE.findall(script)
        at = rng.randrange(len(pieces))
        match rng.randrange(6):
            case 0:
                pieces[at] = rng.choice(_PIECES)
            case 1:
                pieces.insert(at, rng.choice(_PIECES))
            case 2:
                del pieces[at]
            case 3:
                pieces = [b"name" if piece == pieces[at] else piece for piece in pieces]
            case 4:
                pieces[at] = pieces[at].swapcase()
            case _:
                pieces[at] = rng.choice(pieces)
        return _packed(b"".join(pieces), keys, args, rows)
    except (ValueError, TypeError, msgpack.UnpackException):
        return mutate_bytes(rng, data)


def targets() -> list[Target]:
    modules = ("shale.resp.commands.lock_actions", "shale.resp.commands.scripts", "shale.resp.arguments.numbers")
    shapes = ("shale.resp.scripts.lock_scripts", "shale.resp.scripts.lua_shape")
    return [Target("lock script", _call, _seeds, (), (*modules, *shapes), _mutate, 0.95)]
