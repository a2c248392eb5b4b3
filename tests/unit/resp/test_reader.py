"""The Redis port of a reader: it reads, and refuses to write."""

import asyncio
from collections.abc import Sequence

import pytest

from shale.resp.commands.command_table import WRITER_COMMANDS
from tests.unit.resp.harness import RespFailure, reading_harness

WRITES: Sequence[Sequence[str]] = (
    ("SET", "a", "1"),
    ("set", "a", "1", "NX"),
    ("MSET", "a", "1"),
    ("DEL", "a"),
    ("WAITAOF", "1", "0", "10"),
    ("INCR", "a"),
    ("DECR", "a"),
    ("INCRBY", "a", "1"),
    ("DECRBY", "a", "1"),
    ("INCRBYFLOAT", "a", "1"),
    ("APPEND", "a", "1"),
    ("SETRANGE", "a", "0", "1"),
    ("SETBIT", "a", "0", "1"),
    ("SETNX", "a", "1"),
    ("SETEX", "a", "1", "1"),
    ("PSETEX", "a", "1", "1"),
    ("GETSET", "a", "1"),
    ("GETDEL", "a"),
    ("GETEX", "a"),
    ("MSETNX", "a", "1"),
    ("UNLINK", "a"),
    ("EXPIRE", "a", "1"),
    ("PEXPIRE", "a", "1"),
    ("EXPIREAT", "a", "1"),
    ("PEXPIREAT", "a", "1"),
    ("PERSIST", "a"),
    ("RENAME", "a", "b"),
    ("RENAMENX", "a", "b"),
    ("COPY", "a", "b"),
    ("FLUSHDB",),
    ("FLUSHALL",),
    ("EVAL", "return redis.call('del', KEYS[1])", "1", "a"),
    ("EVALSHA", "0" * 40, "0"),
)


def test_it_reads_what_is_durable() -> None:
    async def scenario() -> None:
        async with reading_harness() as (db, reader, say):
            assert await say("GET", "a") is None
            for number in range(5):
                await (await db.put(b"k%d" % number, b"v%d" % number)).durable()
            await reader.refresh()
            assert await say("GET", "k1") == b"v1"
            assert await say("MGET", "k2", "no", "k2") == [b"v2", None, b"v2"]
            assert await say("EXISTS", "k1", "k1", "no") == 2
            assert (await say("SCAN", "0", "COUNT", "100"))[1] == [b"k%d" % number for number in range(5)]
            assert await say("SHALE.SCAN", "LIMIT", "1") == [b"6b30", [b"k0", b"v0"]]
            info = (await say("INFO")).decode()
            assert "role:slave" in info
            assert f"shale_last_seq:{db.status.last_seq}\r\n" in info
            assert "shale_lag_seconds:0" in info
            assert (await say("HELLO", "3"))[b"role"] == b"replica"

    asyncio.run(scenario())


@pytest.mark.parametrize("words", WRITES)
def test_it_does_not_write(words: Sequence[str]) -> None:
    async def scenario() -> None:
        async with reading_harness() as (db, _, say):
            with pytest.raises(RespFailure, match=r"^READONLY "):
                await say(*words)
            await say("MULTI")
            assert await say("GET", "a") == "QUEUED"
            with pytest.raises(RespFailure, match=r"^READONLY "):
                await say(*words)
            with pytest.raises(RespFailure, match=r"^EXECABORT "):
                await say("EXEC")
            assert await say("GET", "a") is None
            assert db.status.last_seq == 0

    asyncio.run(scenario())


def test_every_command_that_writes_is_among_them() -> None:
    writing = {command.name for command in WRITER_COMMANDS.values() if "write" in command.flags}
    assert writing == {words[0].lower() for words in WRITES} - {"waitaof"}


def test_a_transaction_reads_one_state() -> None:
    async def scenario() -> None:
        async with reading_harness() as (db, reader, say):
            await (await db.put(b"a", b"1")).durable()
            await reader.refresh()
            await say("WATCH", "a")
            await say("MULTI")
            await say("GET", "a")
            await say("MGET", "a", "b")
            await say("SCAN", "0")
            assert await say("EXEC") == [b"1", [b"1", None], [b"0", [b"a"]]]
            await say("WATCH", "a")
            await (await db.put(b"a", b"2")).durable()
            await reader.refresh()
            await say("MULTI")
            await say("GET", "a")
            assert await say("EXEC") is None
            assert await say("GET", "a") == b"2"

    asyncio.run(scenario())
