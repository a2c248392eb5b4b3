"""Parsing commands: whole and in pieces, against a model, and invalid input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.resp.options import ParserLimits
from shale.resp.protocol.inline import split_inline
from shale.resp.protocol.parser import Parser, ProtocolError

LIMITS = ParserLimits(arguments=64, argument_bytes=4096, command_bytes=16 * 1024)
WIDE = ParserLimits(arguments=64, argument_bytes=1 << 20, command_bytes=1 << 21)
ARGS = st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"*1\r\n$1\r\na\r\n", b"$3", b"*3\r", b"\n"]))
COMMANDS = st.lists(st.lists(ARGS, min_size=1, max_size=6), max_size=8)


def encoded(command: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in command)


def take_all(parser: Parser, found: list[list[bytes]], count_max: int = 1000) -> None:
    while commands := parser.take(count_max):
        found += commands


def all_of(parser: Parser) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    take_all(parser, found)
    return found


@given(COMMANDS, st.data())
def test_commands_come_out_as_they_went_in_however_they_are_cut(
    commands: list[list[bytes]], data: st.DataObject
) -> None:
    stream = b"".join(map(encoded, commands))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parser, found = Parser(data.draw(st.sampled_from([LIMITS, WIDE]))), list[list[bytes]]()
    count_max = data.draw(st.integers(1, 4))
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        parser.feed(stream[start:stop])
        take_all(parser, found, count_max)
    assert found == commands
    assert parser.buffered_bytes == 0
    assert not parser.is_inside_command


@given(COMMANDS)
def test_byte_by_byte(commands: list[list[bytes]]) -> None:
    stream = b"".join(map(encoded, commands))
    parser, found = Parser(LIMITS), list[list[bytes]]()
    for place in range(len(stream)):
        parser.feed(stream[place : place + 1])
        take_all(parser, found)
    assert found == commands


@given(st.lists(st.one_of(st.binary(max_size=60), COMMANDS.map(lambda each: b"".join(map(encoded, each)))), max_size=8))
def test_any_bytes_are_commands_or_an_error_and_cuts_make_no_difference(pieces: list[bytes]) -> None:
    """The same bytes at once and in pieces: the same commands before the same error, and no other exception."""

    def outcome(parts: list[bytes], limits: ParserLimits = LIMITS) -> tuple[list[list[bytes]], str]:
        parser, found = Parser(limits), list[list[bytes]]()
        try:
            for part in parts:
                parser.feed(part)
                assert parser.buffered_bytes >= 0
                take_all(parser, found)
        except ProtocolError as error:
            return found, str(error)
        return found, ""

    assert outcome(pieces) == outcome([b"".join(pieces)]) == outcome([b"".join(pieces)], WIDE) == outcome(pieces, WIDE)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", "expected '$', got '*'"),
        (b"*65\r\n", "invalid multibulk length"),
        (b"*9999999999999999999999\r\n", "invalid multibulk length"),
        (b"*a\r\n", "invalid multibulk length"),
        (b"*1_0\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*" + b"1" * 40, "too big multibulk count string"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$+1\r\na\r\n", "invalid bulk length"),
        (b"*1\r\n$ 1\r\na\r\n", "invalid bulk length"),
        (b"*1\r\n$4097\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$" + b"1" * 40, "too big bulk count string"),
        (b"*1\r\n$1\r\nabc", "expected the end of a bulk string"),
        (b"GET " + b"a" * 70_000, "too big inline request"),
        (b'GET "a\r\n', "unbalanced quotes in request"),
        (b"*5\r\n" + b"$4096\r\n" + b"a" * 4096 + b"\r\n" + (b"$4096\r\n" + b"a" * 4096 + b"\r\n") * 3, "larger than"),
    ],
)
def test_what_is_no_command_ends_the_connection(stream: bytes, message: str) -> None:
    parser = Parser(LIMITS)
    parser.feed(stream)
    with pytest.raises(ProtocolError, match=message.replace("$", r"\$").replace("*", r"\*")):
        all_of(parser)
    with pytest.raises(ProtocolError):
        parser.take(1)


def test_what_came_before_an_error_is_returned_first() -> None:
    parser = Parser(LIMITS)
    parser.feed(encoded([b"PING"]) + b"*1\r\n:1\r\n")
    assert parser.take(10) == [[b"PING"]]
    with pytest.raises(ProtocolError):
        parser.take(10)


def test_empty_arrays_and_blank_lines_are_passed_over() -> None:
    parser = Parser(LIMITS)
    parser.feed(b"*0\r\n*-1\r\n\r\n  \n" + encoded([b"PING"]) + b"get a\nPING\r\n")
    assert all_of(parser) == [[b"PING"], [b"get", b"a"], [b"PING"]]


def test_a_limit_that_is_raised_in_between_counts_for_the_next_command() -> None:
    parser = Parser(ParserLimits(2, 4, 200))
    parser.feed(encoded([b"AUTH", b"pw"]) + encoded([b"GET", b"a" * 40]))
    assert parser.take(1) == [[b"AUTH", b"pw"]]
    parser.limits = LIMITS
    assert parser.take(1) == [[b"GET", b"a" * 40]]


def test_a_long_value_is_joined_once() -> None:
    """Pieces of a value are kept until the last one arrives, so a long value costs no more per byte."""
    parser = Parser(ParserLimits(4, 1 << 24, 1 << 25))
    parser.feed(b"*2\r\n$3\r\nGET\r\n$%d\r\n" % (1 << 23))
    assert parser.take(1) == []
    for _ in range((1 << 23) // 4096):
        parser.feed(b"x" * 4096)
        assert parser.take(1) == []
    assert parser.buffered_bytes >= 1 << 23
    parser.feed(b"\r\n")
    assert parser.take(1) == [[b"GET", b"x" * (1 << 23)]]
    assert parser.buffered_bytes == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b"set a  b\r", [b"set", b"a", b"b"]),
        (b"set \"a b\" 'c d'", [b"set", b"a b", b"c d"]),
        (rb'x "\x41\n\q\"" ' + b"'it\\'s'", [b"x", b'A\nq"', b"it's"]),
        (b'""', [b""]),
        (b'a"b', [b'a"b']),
        (b'"a"b', None),
        (b"'a", None),
        (b'"a\\"', None),
    ],
)
def test_inline_words(line: bytes, words: list[bytes] | None) -> None:
    assert split_inline(line) == words


@given(st.binary(max_size=200))
def test_any_line_is_words_or_unbalanced(line: bytes) -> None:
    words = split_inline(line)
    assert words is None or all(isinstance(word, bytes) for word in words)
