"""Parts of values: APPEND, STRLEN, GETRANGE, SETRANGE and bits."""

import asyncio

import pytest

from shale.resp.options import RespOptions
from tests.unit.resp.harness import RespFailure, harness


def test_appending() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("STRLEN", "a") == 0
            assert await say("APPEND", "a", "12") == 2
            await say("PEXPIRE", "a", "100")
            assert await say("APPEND", "a", b"\0") == 3
            assert await say("APPEND", "empty", "") == 0
            assert await say("EXISTS", "empty") == 1
            assert await say("STRLEN", "a") == 3
            assert await say("PTTL", "a") == 100
            home.clock.ms += 100
            assert await say("APPEND", "a", "x") == 1
            assert await say("PTTL", "a") == -1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("first", "last", "part"),
    [
        (0, 3, b"This"),
        (-3, -1, b"ing"),
        (0, -1, b"This is a string"),
        (10, 100, b"string"),
        (-100, 1, b"Th"),
        (5, 3, b""),
        (100, 200, b""),
        (0, -100, b"T"),
        (-100, -99, b"T"),
        (-99, -100, b""),
        (-100, -100, b"T"),
        (-16, -17, b""),
        (1, -100, b""),
        (0, 4294967297, b"This is a string"),
    ],
)
def test_ranges_of_a_value(first: int, last: int, part: bytes) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "This is a string")
            assert await say("GETRANGE", "a", first, last) == part
            assert await say("SUBSTR", "a", first, last) == part
            assert await say("GETRANGE", "absent", first, last) == b""

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("old", "offset", "part", "new"),
    [
        ("Hello World", 6, "Redis", b"Hello Redis"),
        ("foo", 4, "bar", b"foo\0bar"),
        ("foo", 1, "", b"foo"),
        ("foo", 9, "", b"foo"),
        (None, 2, "x", b"\0\0x"),
        (None, 2, "", None),
        ("abc", 0, "wxyz", b"wxyz"),
    ],
)
def test_replacing_a_part(old: str | None, offset: int, part: str, new: bytes | None) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            if old is not None:
                await say("SET", "a", old, "PX", "100")
            assert await say("SETRANGE", "a", offset, part) == len(new or b"")
            assert await say("GET", "a") == new
            assert await say("PTTL", "a") == (-2 if new is None else -1 if old is None else 100)

    asyncio.run(scenario())


def test_bits() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("SETBIT", "a", 9, 1) == 0
            assert await say("GET", "a") == b"\0\x40"
            assert await say("SETBIT", "a", 9, 0) == 1
            assert await say("GETBIT", "a", 9) == 0
            await say("SET", "a", "@")
            assert [await say("GETBIT", "a", number) for number in (0, 1, 2, 8, 4_000)] == [0, 1, 0, 0, 0]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("SETRANGE", "a", -1, "x"), "offset is out of range"),
        (("SETRANGE", "a", 9, "x"), "string exceeds maximum allowed size"),
        (("SETRANGE", "a", 9223372036854775807, "x"), "string exceeds maximum allowed size"),
        (("APPEND", "a", "123456"), "string exceeds maximum allowed size"),
        (("SETBIT", "a", 72, 1), "bit offset is not an integer or out of range"),
        (("SETBIT", "a", -1, 1), "bit offset is not an integer or out of range"),
        (("SETBIT", "a", 1, 2), "bit is not an integer or out of range"),
        (("GETRANGE", "a", "x", 1), "value is not an integer or out of range"),
    ],
)
def test_impossible_parts_change_nothing(words: tuple[str | int, ...], problem: str) -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_value_bytes=9)) as home:
            say = home.talker()
            await say("SET", "a", "1234")
            with pytest.raises(RespFailure, match=f"^ERR {problem}"):
                await say(*words)
            assert await say("GET", "a") == b"1234"

    asyncio.run(scenario())


def test_appending_by_many_keeps_every_part() -> None:
    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            await home.talker()("SET", "a", "")
            await home.db.flush("memtable")
            lengths = await asyncio.gather(*(home.talker()("APPEND", "a", "xy") for _ in range(50)))
            assert sorted(lengths) == list(range(2, 102, 2))

    asyncio.run(scenario())
