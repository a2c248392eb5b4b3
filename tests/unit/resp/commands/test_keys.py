"""Commands on keys and on the whole database."""

import asyncio
from collections import Counter

import pytest

from shale.resp.options import RespOptions
from tests.unit.resp.harness import RespFailure, harness


def test_values_that_are_set_or_taken_on_a_condition() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("SETNX", "a", "1") == 1
            assert await say("SETNX", "a", "2") == 0
            assert await say("GETSET", "a", "3") == b"1"
            assert await say("GETSET", "b", "4") is None
            assert await say("MSETNX", "c", "1", "a", "9") == 0
            assert await say("MGET", "a", "b", "c") == [b"3", b"4", None]
            assert await say("MSETNX", "c", "1", "c", "2") == 1
            assert await say("GETDEL", "c") == b"2"
            assert await say("GETDEL", "c") is None
            assert await say("UNLINK", "a", "b", "c") == 2
            with pytest.raises(RespFailure, match="wrong number of arguments for 'msetnx'"):
                await say("MSETNX", "a", "1", "b")

    asyncio.run(scenario())


def test_getset_ends_a_lifetime() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "100")
            await say("GETSET", "a", "2")
            assert await say("TTL", "a") == -1

    asyncio.run(scenario())


def test_types() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1")
            assert await say("TYPE", "a") == "string"
            assert await say("TYPE", "b") == "none"
            assert await say("TOUCH", "a", "a", "b") == 2

    asyncio.run(scenario())


def test_renaming_takes_the_value_and_its_lifetime() -> None:
    async def scenario() -> None:
        async with harness(default_ttl_ms=5_000) as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "100")
            await say("SET", "b", "2")
            assert await say("RENAME", "a", "b") == "OK"
            assert await say("MGET", "a", "b") == [None, b"1"]
            assert await say("PTTL", "b") == 100
            await say("PERSIST", "b")
            assert await say("RENAMENX", "b", "c") == 1
            assert await say("PTTL", "c") == -1
            await say("SET", "b", "3")
            assert await say("RENAMENX", "b", "c") == 0
            assert await say("MGET", "b", "c") == [b"3", b"1"]
            assert await say("RENAME", "c", "c") == "OK"
            assert await say("RENAMENX", "c", "c") == 0
            assert await say("GET", "c") == b"1"
            for words in (("RENAME", "no", "c"), ("RENAMENX", "no", "c"), ("RENAME", "no", "no")):
                with pytest.raises(RespFailure, match=r"^ERR no such key$"):
                    await say(*words)

    asyncio.run(scenario())


def test_copying() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1", "PX", "100")
            assert await say("COPY", "a", "b") == 1
            assert await say("PTTL", "b") == 100
            await say("SET", "a", "2")
            assert await say("COPY", "a", "b") == 0
            assert await say("GET", "b") == b"1"
            assert await say("COPY", "a", "b", "DB", "0", "REPLACE") == 1
            assert await say("GET", "b") == b"2"
            assert await say("PTTL", "b") == -1
            assert await say("COPY", "no", "b", "REPLACE") == 0
            for words, problem in (
                (("COPY", "a", "a"), "source and destination objects are the same"),
                (("COPY", "a", "b", "DB", "1"), "DB index is out of range"),
                (("COPY", "a", "b", "DB", "x"), "value is not an integer"),
                (("COPY", "a", "b", "DB"), "syntax error"),
                (("COPY", "a", "b", "OVER"), "syntax error"),
            ):
                with pytest.raises(RespFailure, match=f"^ERR {problem}"):
                    await say(*words)

    asyncio.run(scenario())


def test_one_of_many_renames_a_key() -> None:
    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            await home.talker()("SET", "baton", "1")
            await home.db.flush("memtable")
            tries = [home.talker()("RENAME", "baton", f"to:{number}") for number in range(30)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            assert Counter(map(type, answers)) == {str: 1, RespFailure: 29}
            assert await home.talker()("KEYS", "*") == [b"to:%d" % answers.index("OK")]

    asyncio.run(scenario())


def test_all_keys() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("RANDOMKEY") is None
            await say("MSET", *(part for number in range(100) for part in (f"k:{number:03}", "v")))
            await home.db.flush("memtable")
            await say("DEL", "k:050")
            await say("SET", "other", "1")
            assert await say("DBSIZE") == 100
            assert await say("KEYS", "k:09?") == [b"k:%03d" % number for number in range(90, 100)]
            assert len(await say("KEYS", "*")) == 100
            assert await say("KEYS", "o*r") == [b"other"]
            with pytest.raises(RespFailure, match="at most 1024 bytes"):
                await say("KEYS", "*?" * 513)

    asyncio.run(scenario())


def test_every_key_is_chosen_now_and_then() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MSET", "bar", "1", "foo", "2")
            assert {await say("RANDOMKEY") for _ in range(50)} == {b"bar", b"foo"}
            await say("MSET", *(part for number in range(30) for part in (f"bar:{number}", "v")))
            chosen = {await say("RANDOMKEY") for _ in range(2_000)}
            assert chosen == set(await say("KEYS", "*"))

    asyncio.run(scenario())


def test_the_keys_of_one_answer_are_bounded() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_command_bytes=1000)) as home:
            say = home.talker()
            for number in range(100):
                await say("SET", f"key:{number}", "1")
            with pytest.raises(RespFailure, match="larger than 1000 bytes; use SCAN"):
                await say("KEYS", "*")

    asyncio.run(scenario())


@pytest.mark.parametrize("word", ["FLUSHDB", "FLUSHALL"])
def test_all_rows_are_deleted_only_where_that_is_allowed(word: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1")
            with pytest.raises(RespFailure, match=r"^ERR .*resp\.allow_flush"):
                await say(word)
            assert await say("DBSIZE") == 1
        async with harness(options=RespOptions(allow_flush=True)) as home:
            say = home.talker()
            await say("MSET", *(part for number in range(5_000) for part in (f"k:{number}", "v")))
            with pytest.raises(RespFailure, match="syntax"):
                await say(word, "NOW")
            assert await say(word, "ASYNC") == "OK"
            assert await say("DBSIZE") == 0
            assert await home.db.get(b"k:1") is None

    asyncio.run(scenario())


def test_a_flush_within_a_transaction_is_whole_or_not_at_all() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(allow_flush=True, max_batch_rows=10)) as home:
            say = home.talker()
            for number in range(11):
                await say("SET", f"k:{number}", "v")
            await say("MULTI")
            await say("FLUSHDB")
            answers = await say("EXEC")
            assert "more than 10 keys" in str(answers[0])
            assert await say("DBSIZE") == 11
            await say("DEL", "k:0")
            await say("MULTI")
            await say("FLUSHDB")
            await say("SET", "after", "1")
            assert await say("EXEC") == ["OK", "OK"]
            assert await say("KEYS", "*") == [b"after"]

    asyncio.run(scenario())


def test_parameters_and_the_time() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_connections=7)) as home:
            say = home.talker()
            assert await say("CONFIG", "GET", "maxclients", "save") == [b"maxclients", b"7", b"save", b""]
            assert await say("CONFIG", "GET", "append*") == [b"appendfsync", b"everysec", b"appendonly", b"yes"]
            assert await say("CONFIG", "GET", "nope") == []
            assert await say("CONFIG", "SET", "list-max-listpack-size", "1") == "OK"
            for words, problem in (
                (("CONFIG", "SET", "maxclients", "8"), "CONFIG SET failed"),
                (("CONFIG", "SET", "nope", "8"), "Unknown option"),
                (("CONFIG", "GET"), "wrong number of arguments for 'config|get'"),
                (("CONFIG", "REWRITE"), "unknown subcommand"),
            ):
                with pytest.raises(RespFailure, match=problem.replace("|", r"\|")):
                    await say(*words)
            seconds, micros = await say("TIME")
            assert int(seconds) * 1000 + int(micros) // 1000 == home.clock.ms

    asyncio.run(scenario())
