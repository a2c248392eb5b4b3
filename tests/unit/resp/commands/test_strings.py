"""GET, SET and related commands: their responses, and the atomicity of read-modify-write."""

import asyncio
from collections.abc import Sequence

import pytest

from shale.resp.commands.set_options import SetOptions, set_options
from shale.resp.errors import RespError
from shale.resp.options import RespOptions
from tests.unit.resp.harness import RespFailure, harness

NOW = 1_000_000


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", SetOptions()),
        ("ex 10", SetOptions(expire_at=NOW + 10_000)),
        ("PX 7", SetOptions(expire_at=NOW + 7)),
        ("EXAT 1000", SetOptions(expire_at=1_000_000)),
        ("PXAT 5", SetOptions(expire_at=5)),
        ("PX x PX 7", SetOptions(expire_at=NOW + 7)),
        ("nx get px 1", SetOptions(expire_at=NOW + 1, only_absent=True, wants_old=True)),
        ("XX KEEPTTL", SetOptions(keeps_ttl=True, only_present=True)),
    ],
)
def test_options_of_set(words: str, options: SetOptions) -> None:
    assert set_options(words.encode().split(), NOW) == options


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("NX XX", "syntax"),
        ("EX", "syntax"),
        ("EX 1 PX 1", "syntax"),
        ("EX 1 KEEPTTL", "syntax"),
        ("KEEPTTL PX 1", "syntax"),
        ("FOO", "syntax"),
        ("EX x", "not an integer"),
        ("EX 1.5", "not an integer"),
        ("EX 99999999999999999999", "not an integer"),
        ("EX 9223372036854775807", "invalid expire"),
        ("PX 9223372036854775807", "invalid expire"),
        ("EX 0", "invalid expire"),
        ("PXAT -1", "invalid expire"),
        ("EX 0 NX XX", "syntax"),
        ("PX x FOO", "syntax"),
        ("PX x EX 1", "syntax"),
    ],
)
def test_impossible_options_of_set(words: str, problem: str) -> None:
    with pytest.raises(RespError, match=problem):
        set_options(words.encode().split(), NOW)


def test_values_and_conditions() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("GET", "a") is None
            assert await say("set", "a", b"\x00\r\n$-1\r\n") == "OK"
            assert await say("GET", "a") == b"\x00\r\n$-1\r\n"
            assert await say("SET", "a", "2", "NX") is None
            assert await say("SET", "a", "2", "NX", "GET") == b"\x00\r\n$-1\r\n"
            assert await say("SET", "b", "1", "XX") is None
            assert await say("SET", "b", "1", "XX", "GET") is None
            assert await say("EXISTS", "b") == 0
            assert await say("SET", "a", "3", "XX", "GET") == b"\x00\r\n$-1\r\n"
            assert await say("MSET", "b", "4", "c", "", "b", "5") == "OK"
            assert await say("MGET", "a", "b", "c", "d") == [b"3", b"5", b"", None]
            assert await say("EXISTS", "a", "a", "d") == 2
            assert await say("DEL", "a", "a", "d", "c") == 2
            assert await say("MGET", "a", "b", "c") == [None, b"5", None]

    asyncio.run(scenario())


def test_expired_values_are_not_there_for_any_command() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "100")
            await say("SET", "b", "1", "EX", "1")
            home.clock.ms += 99
            assert await say("MGET", "a", "b") == [b"1", b"1"]
            home.clock.ms += 1
            assert await say("GET", "a") is None
            assert await say("MGET", "a", "b") == [None, b"1"]
            assert await say("EXISTS", "a", "b") == 1
            assert (await say("SCAN", "0"))[1] == [b"b"]
            assert await say("SHALE.SCAN") == [None, [b"b", b"1"]]
            assert await say("DEL", "a") == 0
            assert await say("SET", "a", "2", "XX") is None
            assert await say("SET", "a", "2", "NX", "GET") is None
            assert await say("GET", "a") == b"2"

    asyncio.run(scenario())


def test_a_replacement_removes_or_keeps_the_lifetime() -> None:
    async def scenario() -> None:
        async with harness(default_ttl_ms=5_000) as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "100")
            await say("SET", "a", "2", "KEEPTTL")
            await say("SET", "fresh", "1", "KEEPTTL")
            await say("SET", "plain", "1", "PX", "100")
            await say("SET", "plain", "2")
            home.clock.ms += 100
            assert await say("MGET", "a", "fresh", "plain") == [None, b"1", b"2"]
            home.clock.ms += 4_900
            assert await say("MGET", "fresh", "plain") == [None, None]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "words",
    [
        ("GET", ""),
        ("SET", "", "v"),
        ("DEL", ""),
        ("SET", "k" * 65_536, "v"),
        ("MSET", "a", "1", "", "2"),
        ("SCAN", "-1"),
    ],
)
def test_impossible_keys_and_cursors_are_errors_and_write_nothing(words: Sequence[str]) -> None:
    async def scenario() -> None:
        async with harness() as home:
            with pytest.raises(RespFailure, match=r"^ERR "):
                await home.talker()(*words)
            assert home.db.status.last_seq == 0

    asyncio.run(scenario())


def test_too_many_keys_in_one_command() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_batch_rows=3)) as home:
            say = home.talker()
            assert await say("MSET", "a", "1", "b", "2", "c", "3") == "OK"
            for words in (("MGET", *"abcd"), ("DEL", *"abcd"), ("EXISTS", *"abcd"), ("MSET", *"abcdefgh")):
                with pytest.raises(RespFailure, match="the limit is 3"):
                    await say(*words)

    asyncio.run(scenario())


def test_one_of_many_wins_a_lock_that_is_read_from_the_store() -> None:
    """Every reader waits for the same block, so all of them decide concurrently."""

    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            await home.db.put(b"lock", b"", ttl="1ms")
            await home.db.flush("memtable")
            home.clock.ms += 10
            answers = await asyncio.gather(*(home.talker()("SET", "lock", number, "NX") for number in range(50)))
            assert sorted(answers, key=str) == [None] * 49 + ["OK"]
            assert await home.talker()("GET", "lock") == str(answers.index("OK")).encode()

    asyncio.run(scenario())


def test_the_old_value_is_given_to_one_only() -> None:
    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            await home.db.put(b"baton", b"first")
            await home.db.flush("memtable")
            old = await asyncio.gather(*(home.talker()("SET", "baton", number, "GET") for number in range(50)))
            last = await home.talker()("GET", "baton")
            assert sorted([*old, last]) == sorted([b"first", *(b"%d" % number for number in range(50))])

    asyncio.run(scenario())
