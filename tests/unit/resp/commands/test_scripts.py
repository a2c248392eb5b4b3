"""Scripts of lock libraries, and what runs in their place."""

import asyncio
import sys
from hashlib import sha1
from typing import Any

import anyio.lowlevel
import pytest

from shale.resp.scripts.lock_scripts import SCRIPTS_MAX, ScriptCache
from shale.resp.scripts.lua_shape import SCRIPT_BYTES_MAX, shape_of
from tests.unit.resp.harness import RespFailure, Talker, harness

RELEASE = """
    -- only the owner
    if redis.call("GET", KEYS[1]) == ARGV[1] then
        return redis.call("DEL", KEYS[1])
    else
        return 0
    end
"""
EXTEND = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
PROLONG = """
    local mine = redis.call('get', KEYS[1])
    if not mine or mine ~= ARGV[1] then return 0 end
    local left = redis.call('pttl', KEYS[1])
    if not left then left = 0 end
    if left < 0 then return 0 end
    local new = ARGV[2]
    if ARGV[3] == "0" then new = ARGV[2] + left end
    redis.call('pexpire', KEYS[1], new)
    return 1
"""
REMAINING = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pttl", KEYS[1]) else return -3 end'
TAKE_ALL = """
    for i, key in ipairs(KEYS) do
      if redis.call("exists", key) == 1 then
        return 0
      end
    end
    for i, key in ipairs(KEYS) do
      redis.call("set", key, ARGV[1], "PX", ARGV[2])
    end
    return #KEYS
"""
EXTEND_ALL = """
    for i, key in ipairs(KEYS) do
      if redis.call("get", key) ~= ARGV[1] then
        return 0
      end
    end
    for i, key in ipairs(KEYS) do
      redis.call("set", key, ARGV[1], "px", ARGV[2])
    end
    return #KEYS
"""
RELEASE_ALL = """
    local count = 0
    for i, key in ipairs(KEYS) do
      if redis.call("get", key) == ARGV[1] then
        redis.pcall("del", key)
        count = count + 1
      end
    end
    return count
"""


def test_scripts_of_one_shape() -> None:
    plain = shape_of(RELEASE.encode())
    assert plain is not None
    for variant in (
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        'if (redis.call("Get", KEYS[1]) == ARGV[1]) then return redis.call("del", KEYS[1]); else return 0; end;',
        "if redis.call('get', KEYS[1]) == ARGV[1] --me\nthen\r\n\treturn redis.call('del', KEYS[1]) else return 0 end",
    ):
        assert shape_of(variant.encode()) == plain


def steps_of(script: bytes) -> int:
    """Return how many lines of Python find the shape of a script."""
    steps = 0

    def trace(_: Any, event: str, __: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        shape_of(script)
    finally:
        sys.settrace(before)
    return steps


def test_the_shape_of_a_script_with_open_brackets_takes_linear_time() -> None:
    half = SCRIPT_BYTES_MAX // 6
    assert steps_of(b"if(" * 2 * half) < 2.5 * steps_of(b"if(" * half)


@pytest.mark.parametrize("script", [EXTEND, PROLONG, TAKE_ALL])
def test_conversions_of_arguments_do_not_change_the_shape(script: str) -> None:
    converted = script.replace("= ARGV[2]", "= argument").replace("ARGV[2]", "tonumber(ARGV[2])")
    assert shape_of(converted.replace("argument", "ARGV[2]").encode()) == shape_of(script.encode())


@pytest.mark.parametrize(
    "script",
    [
        RELEASE.replace("KEYS[1]", "KEYS[2]"),
        RELEASE.replace("ARGV[1]", "ARGV[2]"),
        RELEASE.replace("==", "~="),
        RELEASE.replace("return 0", "return 1"),
        RELEASE.replace("DEL", "GET"),
        RELEASE.replace("redis.call", "other.call"),
        RELEASE.replace("return 0", "--[[ return 0 ]] return 2"),
        RELEASE + "redis.call('flushall')",
        RELEASE + " " * 5000,
        "return 1",
        "return redis.call('get', KEYS[1])",
        "return 'a\\'b'",
        "if if if",
        "tonumber(",
        RELEASE.replace('redis.call("GET", KEYS[1])', 'tonumber(redis.call("GET", KEYS[1]))'),
        RELEASE.replace("ARGV[1]", "tonumber(ARGV[1])"),
        EXTEND.replace("KEYS[1]", "tonumber(KEYS[1])"),
        "",
    ],
)
def test_other_scripts_are_refused(script: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            for words in (("EVAL", script, "1", "lock", "me"), ("SCRIPT", "LOAD", script)):
                with pytest.raises(RespFailure, match="there is no Lua"):
                    await say(*words)

    asyncio.run(scenario())


def test_a_swapped_name_is_another_shape() -> None:
    one = b"local a = KEYS[1] local b = ARGV[1] return a"
    assert shape_of(one) == shape_of(one.replace(b"a", b"x").replace(b"locxl", b"local"))
    assert shape_of(one) != shape_of(one.replace(b"return a", b"return b"))


def test_a_lock_of_one_key() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()

            async def run(script: str, *args: Any) -> Any:
                return await say("EVAL", script, 1, "lock", *args)

            for script, answer in ((RELEASE, 0), (EXTEND, 0), (PROLONG, 0), (REMAINING, -3)):
                assert await run(script, "me", 100, 0) == answer
            await say("SET", "lock", "me", "NX", "PX", "1000")
            for script, answer in ((RELEASE, 0), (EXTEND, 0), (PROLONG, 0), (REMAINING, -3)):
                assert await run(script, "you", 100, 0) == answer
            assert await run(REMAINING, "me") == 1000
            assert await run(EXTEND, "me", 500) == 1
            assert await say("PTTL", "lock") == 500
            assert await run(PROLONG, "me", 100, "0") == 1
            assert await say("PTTL", "lock") == 600
            assert await run(PROLONG, "me", 100, "1") == 1
            assert await say("PTTL", "lock") == 100
            with pytest.raises(RespFailure, match="not an integer"):
                await run(EXTEND, "me", "soon")
            assert await run(RELEASE, "me") == 1
            assert await say("GET", "lock") is None
            await say("SET", "lock", "me")
            assert await run(PROLONG, "me", 100, "0") == 0  # it has no lifetime to add to
            assert await run(EXTEND, "me", 0) == 1
            assert await say("GET", "lock") is None
            await say("SET", "lock", "me", "PX", "10")
            home.clock.ms += 10
            assert await run(RELEASE, "me") == 0

    asyncio.run(scenario())


def test_a_lock_of_many_keys() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("EVAL", TAKE_ALL, 2, "a", "b", "me", 100) == 2
            assert await say("EVAL", TAKE_ALL, 2, "b", "c", "you", 100) == 0
            assert await say("EXISTS", "c") == 0
            assert await say("EVAL", EXTEND_ALL, 2, "a", "b", "you", 900) == 0
            assert await say("EVAL", EXTEND_ALL, 2, "a", "b", "me", 900) == 2
            assert [await say("PTTL", key) for key in "ab"] == [900, 900]
            await say("SET", "c", "you")
            assert await say("EVAL", RELEASE_ALL, 3, "a", "b", "c", "me") == 2
            assert await say("KEYS", "*") == [b"c"]

    asyncio.run(scenario())


TAKE = 'return redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])'
TAKE_OR_EXTEND = """
    local current = redis.call('get', KEYS[1])
    if (current == false) then
        return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0
    elseif (current == ARGV[1]) then
        return redis.call('pexpire', KEYS[1], ARGV[2])
    else
        return -1
    end
"""


def test_taking_a_lock() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("EVAL", TAKE, 1, "lock", "me", 100) == "OK"
            assert await say("EVAL", TAKE, 1, "lock", "you", 100) is None
            assert await say("EVAL", TAKE_OR_EXTEND, 1, "lock", "you", 100) == -1
            assert await say("EVAL", TAKE_OR_EXTEND, 1, "lock", "me", 900) == 1
            assert await say("PTTL", "lock") == 900
            assert await say("EVAL", TAKE_OR_EXTEND, 1, "free", "you", 100) == 1
            assert await say("GET", "free") == b"you"

    asyncio.run(scenario())


@pytest.mark.parametrize("lifetime", ["0", "-1", "soon"])
def test_a_taken_lock_refuses_an_impossible_lifetime_too(lifetime: str) -> None:
    """Redis' ``set`` looks at the lifetime first."""

    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "lock", "me")
            # This script looks at the lock first.
            assert await say("EVAL", TAKE_OR_EXTEND, 1, "lock", "you", lifetime) == -1
            for script, args in ((TAKE, ("you", lifetime)), (EXTEND_OR_TAKE, ("you", lifetime))):
                with pytest.raises(RespFailure, match=r"expire time|integer"):
                    await say("EVAL", script, 1, "lock", *args)
            with pytest.raises(RespFailure, match=r"expire time|integer"):
                await say("EVAL", TAKE_BY_PREFIX, 1, "lock", "you:1", 3, lifetime)
            assert await say("GET", "lock") == b"me"

    asyncio.run(scenario())


EXTEND_OR_TAKE = """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2])
    elseif redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 else return 0 end
"""
REENTER = """
    local id = redis.call('GET', KEYS[1])
    if id == ARGV[1] then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      return true
    elseif not id then
      redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
      return true
    end
    return false
"""
TAKE_OR_RENEW = """
    if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
    end
"""
DESCRIBE = 'return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }'
TAKE_BY_PREFIX = """
    if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[3]) then return redis.status_reply("OK") end
    local length = tonumber(ARGV[2])
    if redis.call("getrange", KEYS[1], 0, length-1) == string.sub(ARGV[1], 1, length)
    then return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[3]) end
"""


def test_taking_or_renewing_a_lock() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("EVAL", REENTER, 1, "a", "me", 100) == 1
            assert await say("EVAL", REENTER, 1, "a", "you", 100) is None
            assert await say("EVAL", REENTER, 1, "a", "me", 900) == 1
            assert await say("EVAL", DESCRIBE, 1, "a") == [b"me", 900]
            assert await say("EVAL", DESCRIBE, 1, "b") == [None, -2]
            assert await say("EVAL", TAKE_OR_RENEW, 1, "b", "me", 100, "no") is None
            assert await say("EVAL", TAKE_OR_RENEW, 1, "b", "me", 100, "yes") == "OK"
            assert await say("EVAL", TAKE_OR_RENEW, 1, "b", "you", 100, "yes") is None
            assert await say("EVAL", TAKE_OR_RENEW, 1, "b", "me", 900, "no") == "OK"
            assert await say("EVAL", DESCRIBE, 1, "b") == [b"me", 900]
            assert await say("EVAL", TAKE_BY_PREFIX, 1, "c", "me:1", 3, 100) == "OK"
            assert await say("EVAL", TAKE_BY_PREFIX, 1, "c", "you:1", 3, 100) is None
            assert await say("EVAL", TAKE_BY_PREFIX, 1, "c", "me:2", 3, 900) == "OK"
            assert await say("EVAL", DESCRIBE, 1, "c") == [b"me:2", 900]

    asyncio.run(scenario())


def test_scripts_by_hash() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say, other = home.talker(), home.talker()
            digest = sha1(RELEASE.encode(), usedforsecurity=False).hexdigest()
            await say("SET", "lock", "me")
            with pytest.raises(RespFailure, match=r"^NOSCRIPT "):
                await say("EVALSHA", digest, 1, "lock", "me")
            assert await say("SCRIPT", "LOAD", RELEASE) == digest.encode()
            assert await other("SCRIPT", "EXISTS", digest, "0" * 40) == [1, 0]
            assert await other("EVALSHA", digest.upper(), 1, "lock", "me") == 1
            assert await say("SCRIPT", "FLUSH") == "OK"
            assert await say("SCRIPT", "EXISTS", digest) == [0]

    asyncio.run(scenario())


def test_the_number_of_remembered_hashes_is_bounded() -> None:
    scripts = ScriptCache()
    digests = []
    for number in range(SCRIPTS_MAX + 1):
        found = scripts.add(RELEASE.encode() + b"-- %d" % number)
        assert found is not None
        digests.append(found[0])
    assert scripts.find(digests[0]) is None
    assert scripts.find(digests[-1]) is not None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("EVAL", RELEASE, "x", "lock", "me"), "ERR value is not an integer"),
        (("EVAL", RELEASE, "-1", "lock", "me"), "ERR Number of keys can't be negative"),
        (("EVAL", RELEASE, "3", "lock", "me"), "ERR Number of keys can't be greater than number of args"),
        (("EVAL", RELEASE, "0", "lock", "me"), "ERR the script needs 1 keys and 1 arguments"),
        (("EVAL", RELEASE, "1", "lock"), "ERR the script needs 1 keys and 1 arguments"),
        (("SCRIPT", "KILL"), "NOTBUSY "),
        (("SCRIPT", "LOAD"), "ERR wrong number of arguments"),
        (("SCRIPT", "DEBUG", "YES"), "ERR unknown subcommand"),
        (("FUNCTION", "LOAD", "x"), "ERR there are no functions"),
    ],
)
def test_impossible_calls(words: tuple[str, ...], problem: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "lock", "me")
            with pytest.raises(RespFailure, match=f"^{problem}"):
                await say(*words)
            assert await say("GET", "lock") == b"me"
            assert await say("FUNCTION", "FLUSH") == "OK"
            assert await say("FUNCTION", "LIST") == []

    asyncio.run(scenario())


def test_a_lock_has_one_owner_at_a_time() -> None:
    """Many clients take it, look whether they are alone, and release it; the lock is read from the store."""

    async def scenario() -> None:
        inside: list[int] = []
        async with harness(block_cache_bytes=0) as home:

            async def work(number: int, say: Talker) -> None:
                for _ in range(5):
                    while await say("EVAL", TAKE, 1, "lock", number, 60_000) is None:
                        await anyio.lowlevel.checkpoint()
                    inside.append(number)
                    await asyncio.sleep(0)
                    assert inside == [number]
                    inside.remove(number)
                    assert await say("EVAL", RELEASE, 1, "lock", number) == 1

            async def flush() -> None:
                for _ in range(5):
                    await home.db.flush("memtable")
                    await asyncio.sleep(0)

            await asyncio.gather(flush(), *(work(number, home.talker()) for number in range(8)))

    asyncio.run(scenario())


def test_a_release_within_a_transaction() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "lock", "me")
            await say("MULTI")
            await say("EVAL", RELEASE, 1, "lock", "me")
            await say("EVAL", TAKE, 1, "lock", "you", 100)
            assert await say("EXEC") == [1, "OK"]
            assert await say("GET", "lock") == b"you"

    asyncio.run(scenario())
