"""When keys expire, and how long they still have."""

import asyncio
from typing import Any

import pytest

from tests.unit.resp.harness import RespFailure, harness


def test_times_to_live() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            now_ms = home.clock.ms
            reads = ("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME")
            assert [await say(word, "a") for word in reads] == [-2] * 4
            await say("SET", "a", "1")
            assert [await say(word, "a") for word in reads] == [-1] * 4
            assert await say("PEXPIRE", "a", "1500") == 1
            assert await say("TTL", "a") == 2  # rounded, as in Redis
            assert await say("PTTL", "a") == 1500
            assert await say("PEXPIRETIME", "a") == now_ms + 1500
            assert await say("EXPIRETIME", "a") == (now_ms + 2000) // 1000
            assert await say("EXPIRE", "a", "7") == 1
            assert await say("PTTL", "a") == 7000
            assert await say("PERSIST", "a") == 1
            assert await say("PERSIST", "a") == 0
            assert await say("TTL", "a") == -1
            assert await say("PEXPIREAT", "a", now_ms + 9) == 1
            home.clock.ms += 8
            assert await say("PTTL", "a") == 1
            home.clock.ms += 1
            assert await say("PTTL", "a") == -2
            assert await say("PERSIST", "a") == 0
            assert await say("EXPIRE", "a", "10") == 0  # it does not come back
            assert await say("GET", "a") is None

    asyncio.run(scenario())


def test_an_expiry_in_the_past_deletes() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            for words in (("EXPIRE", "a", "-1"), ("EXPIREAT", "a", "1"), ("PEXPIREAT", "a", "-9223372036854770000")):
                await say("SET", "a", "1")
                assert await say(*words) == 1
                assert await say("EXISTS", "a") == 0
                assert await home.db.get(b"a") is None
            await say("SET", "a", "1")
            assert await say("GETEX", "a", "PXAT", "1") == b"1"
            assert await say("EXISTS", "a") == 0
            assert await say("SET", "a", "1")
            assert await say("PEXPIREAT", "a", "9223372036854770000") == 1
            assert await say("GET", "a") == b"1"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("old_s", "words", "is_set"),
    [
        (None, "NX", True),
        (None, "XX", False),
        (None, "GT", False),
        (None, "LT", True),
        (None, "XX LT", False),
        (100, "NX", False),
        (100, "xx", True),
        (100, "GT", True),
        (100, "LT", False),
        (300, "GT", False),
        (300, "LT", True),
        (200, "GT", False),
        (200, "LT", False),
        (300, "XX LT", True),
    ],
)
def test_conditions_of_an_expiry(old_s: int | None, words: str, is_set: bool) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1", *(() if old_s is None else ("EX", old_s)))
            assert await say("EXPIRE", "a", 200, *words.split()) == int(is_set)
            assert await say("TTL", "a") == (200 if is_set else -1 if old_s is None else old_s)
            assert await say("EXPIRE", "absent", 200, *words.split()) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("EXPIRE a x", "value is not an integer or out of range"),
        ("EXPIRE a 1 AB", "Unsupported option AB"),
        ("EXPIRE a 1 XX AB", "Unsupported option AB"),
        ("EXPIRE a 1 NX XX", "NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE a 1 GT NX", "NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE a 1 GT LT", "GT and LT options at the same time are not compatible"),
        ("EXPIRE a 9223372036854775", "invalid expire time in 'expire' command"),
        ("EXPIRE a 9223372036854776", "invalid expire time in 'expire' command"),
        ("EXPIRE a -9223372036854776", "invalid expire time in 'expire' command"),
        ("PEXPIRE a 9223372036854775807", "invalid expire time in 'pexpire' command"),
        ("EXPIREAT a 9223372036854776", "invalid expire time in 'expireat' command"),
        ("SETEX a 0 1", "invalid expire time in 'setex' command"),
        ("PSETEX a -1 1", "invalid expire time in 'psetex' command"),
        ("GETEX a EX 0", "invalid expire time in 'getex' command"),
        ("GETEX a EX 1 PERSIST", "syntax error"),
        ("GETEX a KEEPTTL", "syntax error"),
        ("GETEX a PX", "syntax error"),
        ("GETEX a PX 0 EX 1", "syntax error"),
        ("GETEX a EX x FOO", "syntax error"),
        ("GETEX a PX 5 PX x", "value is not an integer or out of range"),
    ],
)
def test_impossible_expiries(words: str, problem: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1")
            with pytest.raises(RespFailure, match=f"^ERR {problem}$"):
                await say(*words.split())
            assert await say("TTL", "a") == -1

    asyncio.run(scenario())


def test_values_with_a_lifetime() -> None:
    async def scenario() -> None:
        async with harness(default_ttl_ms=60_000) as home:
            say = home.talker()
            assert await say("SETEX", "a", "10", "1") == "OK"
            assert await say("PTTL", "a") == 10_000
            assert await say("PSETEX", "a", "10", "2") == "OK"
            assert await say("PTTL", "a") == 10
            assert await say("GETEX", "a") == b"2"
            assert await say("PTTL", "a") == 10
            assert await say("GETEX", "a", "EX", "5") == b"2"
            assert await say("PTTL", "a") == 5_000
            assert await say("GETEX", "a", "PERSIST") == b"2"
            assert await say("PTTL", "a") == -1
            assert await say("GETEX", "a", "EX", "5", "EX", "7") == b"2"
            assert await say("PTTL", "a") == 7_000
            assert await say("GETEX", "absent", "EX", "5") is None
            assert await say("GETEX", "absent", "EX", "0") is None

    asyncio.run(scenario())


READS: tuple[tuple[tuple[Any, ...], Any], ...] = (
    (("GET", "a"), None),
    (("GETEX", "a"), None),
    (("GETDEL", "a"), None),
    (("GETRANGE", "a", 0, -1), b""),
    (("STRLEN", "a"), 0),
    (("GETBIT", "a", 2), 0),
    (("EXISTS", "a"), 0),
    (("TOUCH", "a"), 0),
    (("TYPE", "a"), "none"),
    (("TTL", "a"), -2),
    (("EXPIRE", "a", "10"), 0),
    (("PERSIST", "a"), 0),
    (("UNLINK", "a"), 0),
    (("COPY", "a", "b"), 0),
    (("KEYS", "*"), []),
    (("DBSIZE",), 0),
    (("RANDOMKEY",), None),
    (("MGET", "a"), [None]),
    (("SCAN", "0"), [b"0", []]),
    (("SETNX", "a", "2"), 1),
    (("MSETNX", "a", "2"), 1),
    (("GETSET", "a", "2"), None),
    (("INCR", "a"), 1),
    (("APPEND", "a", "2"), 1),
    (("SETRANGE", "a", 0, "x"), 1),
    (("SET", "a", "2", "XX"), None),
)


@pytest.mark.parametrize(("words", "answer"), READS)
@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_an_expired_row_is_absent_for_every_command(
    words: tuple[Any, ...], answer: Any, is_in_transaction: bool
) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "10")
            home.clock.ms += 10
            if not is_in_transaction:
                assert await say(*words) == answer
                return
            await say("MULTI")
            await say(*words)
            assert await say("EXEC") == [answer]

    asyncio.run(scenario())
