"""Passwords with roles: what each may do, and users that are names of roles."""

import asyncio

import pytest
from pydantic import SecretStr

from shale.resp.options import RespOptions
from shale.service.access import Role
from shale.service.audit import fingerprint
from shale.telemetry.log import RateLimit
from tests.unit.resp.harness import RespFailure, harness
from tests.unit.resp.test_reader import WRITES

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
TOKENS = {"r": Role.READ, "w": Role.WRITE, "a": Role.ADMIN}


@pytest.mark.parametrize(
    ("words", "user"),
    [(("r",), "default"), (("default", "r"), "default"), (("read", "w"), "read"), (("read", "r"), "read")],
)
def test_a_reading_client_cannot_write(words: tuple[str, ...], user: str) -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            await home.db.put(b"k", b"1")
            say = home.talker()
            assert await say("AUTH", *words) == "OK"
            assert await say("GET", "k") == b"1"
            for command in (("SET", "k", "2"), ("DEL", "k"), ("MSET", "k", "2"), ("set", "k")):
                message = rf"^NOPERM User {user} has no permissions to run the '{command[0].lower()}' command"
                with pytest.raises(RespFailure, match=message):
                    await say(*command)
            assert await home.db.get(b"k") == b"1"

    asyncio.run(scenario())


def test_no_command_that_writes_is_open_to_a_reading_client() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS, options=RespOptions(allow_flush=True)) as home:
            say = home.talker()
            await say("AUTH", "r")
            for command in WRITES:
                if command[0] != "WAITAOF":  # it waits only
                    with pytest.raises(RespFailure, match=r"^NOPERM"):
                        await say(*command)
            assert home.db.status.last_seq == 0

    asyncio.run(scenario())


def test_a_refused_write_aborts_the_transaction() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            say = home.talker()
            await say("HELLO", "3", "AUTH", "default", "r")
            await say("MULTI")
            with pytest.raises(RespFailure, match=r"^NOPERM"):
                await say("SET", "k", "1")
            with pytest.raises(RespFailure, match=r"^EXECABORT"):
                await say("EXEC")
            assert await home.db.get(b"k") is None

    asyncio.run(scenario())


@pytest.mark.parametrize("words", [("w",), ("a",), ("write", "w"), ("write", "a"), ("admin", "a"), ("default", "a")])
def test_a_writing_client(words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            say = home.talker()
            await say("AUTH", *words)
            assert await say("SET", "k", "1") == "OK"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "words", [("write", "r"), ("admin", "w"), ("READ", "r"), ("root", "a"), ("read", ""), ("read",)]
)
def test_a_user_whose_role_the_password_does_not_have(words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            say = home.talker()
            with pytest.raises(RespFailure, match=r"^WRONGPASS"):
                await say("AUTH", *words)
            with pytest.raises(RespFailure, match=r"^NOAUTH"):
                await say("GET", "k")

    asyncio.run(scenario())


def test_a_client_can_change_its_role() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            say = home.talker()
            await say("AUTH", "r")
            await say("AUTH", "w")
            assert await say("SET", "k", "1") == "OK"
            await say("AUTH", "read", "w")
            with pytest.raises(RespFailure, match=r"^NOPERM User read"):
                await say("SET", "k", "1")

    asyncio.run(scenario())


@pytest.mark.parametrize("word", ["FLUSHDB", "FLUSHALL"])
def test_only_an_administrator_may_delete_every_row(word: str) -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS, options=RespOptions(allow_flush=True)) as home:
            say = home.talker()
            for words in (("w",), ("write", "a")):
                await say("AUTH", *words)
                await say("SET", "k", "1")
                with pytest.raises(RespFailure, match=rf"^NOPERM .* '{word.lower()}' command"):
                    await say(word)
            assert await say("GET", "k") == b"1"
            await say("AUTH", "a")
            assert await say(word) == "OK"
            assert await say("GET", "k") is None

    asyncio.run(scenario())


def test_commands_of_administration_are_in_the_audit_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shale.telemetry.log.RATE_LIMIT", RateLimit())

    async def scenario() -> None:
        async with harness(tokens=TOKENS, options=RespOptions(allow_flush=True)) as home:
            say = home.talker()
            with pytest.raises(RespFailure, match=r"^NOAUTH"):
                await say("FLUSHALL")
            await say("AUTH", "w")
            with pytest.raises(RespFailure, match=r"^NOPERM"):
                await say("flushdb")
            await say("AUTH", "a")
            with pytest.raises(RespFailure, match=r"^ERR syntax"):
                await say("FLUSHDB", "LATER")
            await say("MULTI")
            await say("FLUSHDB")
            assert not said("admin.call.completed")
            assert await say("EXEC") == ["OK"]
            assert await say("FLUSHALL", "SYNC") == "OK"
            assert await say("SET", "k", "1") == "OK"

    def said(event: str) -> list[dict[str, object]]:
        return [
            record.msg for record in caplog.records if isinstance(record.msg, dict) and record.msg["event"] == event
        ]

    with caplog.at_level("INFO", "shale.audit"):
        asyncio.run(scenario())
    admin = {"role": "admin", "fingerprint": fingerprint(b"a"), "method": "RESP"}
    refused = [(each["role"], each["path"], each["reason"]) for each in said("admin.call.refused")]
    assert refused == [("none", "FLUSHALL", "unauthorized"), ("write", "FLUSHDB", "forbidden")]
    (failed,) = said("admin.call.failed")
    assert admin.items() | {("path", "FLUSHDB")} <= failed.items()
    completed = said("admin.call.completed")
    assert [each["path"] for each in completed] == ["FLUSHDB", "FLUSHALL"]
    assert all(admin.items() <= each.items() for each in completed)


@pytest.mark.parametrize("words", [("FLUSH",), ("LOAD", RELEASE + " ")])
def test_a_reading_client_does_not_change_the_scripts_of_others(words: tuple[str, ...]) -> None:
    """Scripts of all clients are in one cache of a limited size: one more may drop another one."""

    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            reading, writing = home.talker(), home.talker()
            await reading("AUTH", "r")
            await writing("AUTH", "w")
            digest = await writing("SCRIPT", "LOAD", RELEASE)
            command = words[0].lower()
            with pytest.raises(RespFailure, match=rf"^NOPERM User default .* run the 'script\|{command}' command"):
                await reading("SCRIPT", *words)
            assert await reading("SCRIPT", "EXISTS", digest) == [1]
            assert await writing("EVALSHA", digest, 1, "lock", "token") == 0
            assert await writing("SCRIPT", *words) is not None

    asyncio.run(scenario())


def test_the_first_token_of_a_port_applies_to_clients_that_were_connected_before() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say, queueing = home.talker(), home.talker()
            assert await say("SET", "k", "1") == "OK"
            await queueing("MULTI")
            assert await queueing("SET", "k", "2") == "QUEUED"
            home.access.replace([(SecretStr("r"), Role.READ)])
            for words in (("GET", "k"), ("SET", "k", "3"), ("NOPE",)):
                with pytest.raises(RespFailure, match=r"^NOAUTH"):
                    await say(*words)
            assert await say("AUTH", "r") == "OK"
            assert await say("GET", "k") == b"1"
            with pytest.raises(RespFailure, match=r"^NOPERM"):
                await say("SET", "k", "3")

            assert await queueing("AUTH", "r") == "QUEUED"
            with pytest.raises(RespFailure, match=r"^NOAUTH"):
                await queueing("EXEC")
            assert await queueing("AUTH", "r") == "OK"
            with pytest.raises(RespFailure, match="EXEC without MULTI"):
                await queueing("EXEC")
            assert await home.db.get(b"k") == b"1", "what was queued before needs the rights of the token"

    asyncio.run(scenario())


def test_a_client_with_a_token_keeps_its_role_when_tokens_change() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS) as home:
            say = home.talker()
            await say("AUTH", "w")
            home.access.replace([(SecretStr("w2"), Role.WRITE)])
            assert await say("SET", "k", "1") == "OK"

    asyncio.run(scenario())
