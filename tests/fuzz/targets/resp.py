"""The RESP port: commands as they arrive on a connection, inline commands, scripts and patterns."""

import contextlib
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

from shale.resp.arguments.glob import literal_prefix, matcher
from shale.resp.arguments.long_double import parse, shown
from shale.resp.commands.command_table import WRITER_COMMANDS
from shale.resp.options import ParserLimits
from shale.resp.protocol.inline import split_inline
from shale.resp.protocol.parser import Parser, ProtocolError
from shale.resp.scripts.lock_scripts import ScriptCache
from shale.resp.scripts.lua_shape import shape_of
from shale.resp.session import RespSession
from tests.fuzz import loop
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target
from tests.unit.resp.harness import decode_one, harness

_LIMITS = ParserLimits(arguments=64, argument_bytes=4096, command_bytes=16 * 1024)
_HOME = loop.kept(harness)
_NOT_RUN = frozenset((b"SHUTDOWN", b"DEBUG"))
_WORDS = (
    *(b"*1\r\n", b"$-1\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"*0\r\n", b"*2147483648\r\n", b"$9999999999999\r\n", b"\r\n"),
    *(b"PING\r\n", b'"a b"', b"'", b"\\x4", b"\n", b"*1000000\r\n", b"$4097\r\n"),
)
_ARGUMENTS = (
    *(b"", b"0", b"-1", b"k", b"9223372036854775807", b"-9223372036854775809", b"1e400", b"nan", b"inf", b"*", b"[^"),
    *(b"NX", b"XX", b"EX", b"PX", b"GET", b"MATCH", b"COUNT", b"TYPE", b"WITHVALUES", b"\xff" * 20, b"9" * 5000),
    *(b"k" * 70_000, b"redis.call('GET', KEYS[1])", b"return 1", b"0.1", b" 5", b"5 "),
)


def _take_all(data: bytes, cuts: list[int]) -> tuple[list[list[bytes]], str | None]:
    parser = Parser(_LIMITS)
    found: list[list[bytes]] = []
    bounds = [0, *cuts, len(data)]
    try:
        for start, end in pairwise(bounds):
            parser.feed(data[start:end])
            while commands := parser.take(7):
                found += commands
    except ProtocolError as error:
        return found, str(error)
    return found, None


def _parser(data: bytes) -> None:
    """Parse at once, byte by byte, and in two pieces: cuts make no difference."""
    whole = _take_all(data, [])
    require_equal("commands at once and in pieces", whole, _take_all(data, [len(data) // 2]))
    if len(data) < 300:
        require_equal("commands at once and byte by byte", whole, _take_all(data, list(range(1, len(data)))))


def _commands(data: bytes) -> None:
    """Run commands on a database: every answer is one reply of the protocol."""
    loop.run(_run(_take_all(data, [])[0][:30]))


async def _run(commands: list[list[bytes]]) -> None:
    home = await _HOME()
    session = RespSession(home.backend, WRITER_COMMANDS)
    await session.execute([b"FLUSHDB"])
    try:
        for args in commands:
            if args[0].upper() in _NOT_RUN:
                continue
            answer = await session.execute(args)
            for _ in range(1 + answer.count(b"\r\n")):
                if not answer:
                    break
                _, answer = decode_one(answer)
            if answer:
                raise Difference(f"an answer that is no reply: {args[0][:20]!r} {answer[:100]!r}")
    finally:
        session.queued.reset()


def _encoded(args: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args)


def _mutate_commands(rng: random.Random, data: bytes) -> bytes:
    """Change, add or drop a command or one of its arguments, and frame them all again."""
    commands, _ = _take_all(data, [])
    if not commands or rng.random() < 0.2:
        return mutate_bytes(rng, data)
    at = rng.randrange(len(commands))
    args = list(commands[at])
    match rng.randrange(5):
        case 0:
            args[rng.randrange(len(args))] = rng.choice(_ARGUMENTS)
        case 1:
            args.insert(rng.randrange(len(args) + 1), rng.choice(_ARGUMENTS))
        case 2:
            args[0] = rng.choice(sorted(WRITER_COMMANDS))
        case 3:
            args[-1] = mutate_bytes(rng, args[-1])
        case _:
            args = args[:-1] or [b"PING"]
    commands[at] = args
    if rng.random() < 0.3:
        commands.insert(rng.randrange(len(commands) + 1), list(rng.choice(commands)))
    return b"".join(map(_encoded, commands))


def _text(data: bytes) -> None:
    """Read a line, a script, a pattern and a number."""
    words = split_inline(data.partition(b"\n")[0])
    if words is not None and not all(type(word) is bytes for word in words):
        raise Difference("an inline command has other words than bytes")
    shape_of(data)
    ScriptCache().add(data)
    matches = matcher(data[:500])
    prefix = literal_prefix(data[:500])
    for key in (b"", b"k" * 300, data[:300]):
        if matches(key) and not key.startswith(prefix):
            raise Difference("a pattern matches a key without its literal prefix")
    with contextlib.suppress(ValueError):
        _shown(parse(data[:6000]))


def _shown(number: Fraction | None) -> None:
    try:
        if number is not None:
            shown(number)
    except ValueError as error:
        raise Difference(f"a number that was read cannot be shown: {error}") from error


def _seeds() -> list[bytes]:
    texts: tuple[list[Any], ...] = (
        [["SET", "k", "v", "EX", "10", "NX"], ["GET", "k"], ["INCRBY", "n", "5"], ["INCRBYFLOAT", "n", "0.5"]],
        [["MULTI"], ["SET", "a", "1"], ["APPEND", "a", "2"], ["EXEC"], ["WATCH", "a"], ["UNWATCH"]],
        [["SCAN", "0", "MATCH", "k*", "COUNT", "5"], ["KEYS", "[a-z]?"], ["RANDOMKEY"], ["DBSIZE"]],
        [["HELLO", "3"], ["CLIENT", "SETNAME", "x"], ["CONFIG", "GET", "*"], ["COMMAND"], ["INFO"]],
        [["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"], ["SCRIPT", "LOAD", "return 1"]],
        [["SETRANGE", "k", "5", "x"], ["GETRANGE", "k", "0", "-1"], ["STRLEN", "k"], ["PEXPIREAT", "k", "99"]],
        [
            ["MSET", "a", "1", "b", "2"],
            ["MGET", "a", "b", "c"],
            ["DEL", "a"],
            ["EXISTS", "b"],
            ["GETEX", "b", "PERSIST"],
        ],
    )
    return [b"".join(_encoded([word.encode() for word in words]) for words in each) for each in texts]


def _all_commands() -> list[bytes]:
    every = [_encoded([name, *[b"k"] * count]) for name in sorted(WRITER_COMMANDS) for count in (0, 1, 2, 3)]
    return [*_seeds(), *every]


def _texts() -> list[bytes]:
    return [
        b"SET \"a b\" 'c' \\x41\n",
        b'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end',
        b"k*[^a-z]?\\*[]-x]",
        b"-1.5e10",
        b"1e4900",
        b"0x1p4",
    ]


def targets() -> list[Target]:
    commands = tuple(
        f"shale.resp.commands.{name}"
        for name in (
            *("client", "config", "connection", "counters", "expiry", "keys", "keyspace", "lock_actions", "ranges"),
            *("scan", "scripts", "server", "set_options", "strings", "transactions"),
        )
    )
    texts = (
        *("protocol.inline", "scripts.lua_shape", "scripts.lock_scripts"),
        *("arguments.glob", "arguments.long_double"),
    )
    words = words_mutation((*_WORDS, *_ARGUMENTS))
    return [
        Target(
            "resp parser",
            _parser,
            _seeds,
            (),
            ("shale.resp.protocol.parser", "shale.resp.protocol.inline"),
            any_of(words, _mutate_commands),
        ),
        Target(
            "resp commands",
            _commands,
            _all_commands,
            (),
            (
                *commands,
                "shale.resp.session",
                "shale.resp.arguments.numbers",
                "shale.resp.cursors",
                "shale.resp.protocol.encoder",
            ),
            _mutate_commands,
            weight=2,
        ),
        Target("resp texts", _text, _texts, (), tuple(f"shale.resp.{name}" for name in texts), words),
    ]
