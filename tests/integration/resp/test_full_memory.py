"""What the Redis port replies while the process holds as much memory as it may."""

import pytest

from shale.core.memory_account import MemoryAccount
from shale.service.memory.process_memory import ProcessMemory
from tests.integration.resp.port import Port, serve


def test_writes_are_refused_and_deletes_and_reads_go_on() -> None:
    """As Redis does at ``maxmemory``."""
    account = MemoryAccount(1 << 40)

    async def scenario(port: Port) -> None:
        line = await port.connect()
        assert await line.say("SET", "a", "1") == "OK"
        account.is_full = True
        assert str(await line.say("SET", "a", "2")).startswith("OOM command not allowed")
        assert await line.say("GET", "a") == b"1"
        assert await line.say("DEL", "a") == 1
        account.is_full = False
        assert await line.say("SET", "a", "2") == "OK"
        assert account.refusals == 1

    serve(scenario, memory=ProcessMemory(account))


TAKE = "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


@pytest.mark.parametrize(
    "words",
    [
        ("RENAME", "a", "b"),
        ("RENAMENX", "a", "b"),
        ("GETEX", "a", "EX", "100"),
        ("EXPIRE", "a", "100"),
        ("PEXPIRE", "a", "100000"),
        ("EXPIREAT", "a", "100000000000"),
        ("PEXPIREAT", "a", "100000000000000"),
        ("PERSIST", "a"),
    ],
    ids=lambda words: words[0],
)
def test_what_writes_a_value_again_is_refused(words: tuple[str, ...]) -> None:
    account = MemoryAccount(1 << 40)

    async def scenario(port: Port) -> None:
        line = await port.connect()
        assert await line.say("SET", "a", "1", "EX", "50") == "OK"
        account.is_full = True
        assert str(await line.say(*words)).startswith("OOM command not allowed")
        assert account.refusals == 1
        assert await line.say("TTL", "a") in (49, 50)
        assert await line.say("EXISTS", "b") == 0

    serve(scenario, memory=ProcessMemory(account))


def test_scripts_that_take_a_lock_are_refused_and_those_that_release_one_go_on() -> None:
    account = MemoryAccount(1 << 40)

    async def scenario(port: Port) -> None:
        line = await port.connect()
        assert await line.say("EVAL", TAKE, "1", "a", "token", "50000") == "OK"
        account.is_full = True
        assert str(await line.say("EVAL", TAKE, "1", "b", "token", "50000")).startswith("OOM command not")
        assert account.refusals == 1
        assert await line.say("EXISTS", "b") == 0
        assert await line.say("EVAL", RELEASE, "1", "a", "token") == 1

    serve(scenario, memory=ProcessMemory(account))
