"""Authentication, choice of the protocol, and information about server and client."""

import asyncio

import pytest

from shale.resp.commands.command_table import COMMANDS
from shale.telemetry.catalogue import RESP_COMMANDS
from tests.paths import REPOSITORY
from tests.unit.resp.harness import RespFailure, harness

PAGE = REPOSITORY / "docs" / "reference" / "resp.md"


def test_without_the_password_nothing_is_done() -> None:
    async def scenario() -> None:
        async with harness(token="secret") as home:
            say = home.talker()
            for words in (("PING",), ("GET", "a"), ("NOPE",), ("MULTI",), ("COMMAND",), ("HELLO", "3")):
                with pytest.raises(RespFailure, match=r"^NOAUTH "):
                    await say(*words)
            for words in (("AUTH", "wrong"), ("AUTH", "root", "secret"), ("HELLO", "3", "AUTH", "default", "wrong")):
                with pytest.raises(RespFailure, match=r"^WRONGPASS "):
                    await say(*words)
            assert say.session.encoding.version == 2
            assert await say("AUTH", "secret") == "OK"
            assert await say("PING") == "PONG"
            other = home.talker()
            hello = await other("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me")
            assert hello[b"proto"] == 3
            assert await other("CLIENT", "GETNAME") == b"me"
            assert await other("QUIT") == "OK"
            assert other.session.is_closing

    asyncio.run(scenario())


def test_a_password_where_none_is_set_is_a_mistake() -> None:
    async def scenario() -> None:
        async with harness() as home:
            with pytest.raises(RespFailure, match="no password is set"):
                await home.talker()("AUTH", "x")

    asyncio.run(scenario())


def test_both_protocols() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert (await say("HELLO"))[:2] == [b"server", b"shale"]
            assert await say.session.execute([b"GET", b"a"]) == b"$-1\r\n"
            with pytest.raises(RespFailure, match=r"^NOPROTO "):
                await say("HELLO", "4")
            await say("HELLO", "3")
            assert await say.session.execute([b"GET", b"a"]) == b"_\r\n"
            assert (await say.session.execute([b"INFO"])).startswith(b"=")
            await say("HELLO", "2")
            assert (await say.session.execute([b"INFO"])).startswith(b"$")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nope", "a", "b"), r"^ERR unknown command 'nope', with args beginning with: 'a' 'b' $"),
        (("SUBSCRIBE", "c"), r"^ERR unknown command 'SUBSCRIBE'"),
        (("EVAL", "return 1", "0"), r"^ERR this script cannot run: there is no Lua"),
        (("a\r\nb",), r"unknown command 'a\?\?b'"),
        (("GET",), r"^ERR wrong number of arguments for 'get' command$"),
        (("get", "a", "b"), r"^ERR wrong number of arguments for 'get' command$"),
        (("MSET", "a", "1", "b"), r"^ERR wrong number of arguments for 'mset' command$"),
        (("PING", "a", "b"), r"^ERR wrong number of arguments for 'ping' command$"),
        (("SELECT", "1"), r"^ERR DB index is out of range$"),
        (("CLIENT", "KILL"), r"^ERR unknown subcommand 'KILL'"),
        (("CLIENT", "SETNAME"), r"^ERR wrong number of arguments for 'client\|setname' command$"),
        (("CLIENT", "SETNAME", "a b"), r"^ERR Client names"),
        (("CLIENT", "SETINFO", "FOO", "a"), r"^ERR Unrecognized option"),
        (("COMMAND", "FOO"), r"^ERR unknown subcommand"),
        (("WAITAOF", "2", "0", "0"), r"^ERR value is out of range"),
    ],
)
def test_mistakes(words: tuple[str, ...], problem: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            with pytest.raises(RespFailure, match=problem):
                await home.talker()(*words)
            assert sum(home.backend.errors.values()) == 1
            assert sum(home.backend.failures.values()) == 0
            assert sum(home.backend.calls.values()) == 1

    asyncio.run(scenario())


def test_a_browser_is_shown_the_door() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            with pytest.raises(RespFailure):
                await say("POST", "/", "HTTP/1.1")
            assert say.session.is_closing

    asyncio.run(scenario())


def test_info_and_client_commands_describe_the_server() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "1")
            info = (await say("INFO")).decode()
            assert "\r\nshale_last_seq:1\r\n" in info
            assert "# Keyspace" in info
            assert "# Clients" not in (await say("INFO", "server", "stats")).decode()
            assert await say("COMMAND", "COUNT") == len(COMMANDS) == len(await say("COMMAND"))
            (get, none) = await say("COMMAND", "INFO", "GET", "nope")
            assert get[:6] == [b"get", 2, ["readonly", "fast"], 1, 1, 1]
            assert none is None
            assert set(await say("COMMAND", "LIST")) == {name.encode() for name in COMMANDS}
            assert await say("COMMAND", "LIST", "FILTERBY", "PATTERN", "m?et") == [b"mget", b"mset"]
            await say("HELLO", "3")
            assert (await say("COMMAND", "DOCS", "get"))[b"get"][b"group"] == b"string"
            await say("CLIENT", "SETINFO", "lib-name", "x")
            line = (await say("CLIENT", "LIST")).decode()
            assert f"id={await say('CLIENT', 'ID')} " in line
            assert "lib-name=x " in line
            assert await say("CLIENT", "NO-EVICT", "on") == "OK"
            assert await say("ECHO", "hi") == b"hi"
            assert await say("PING", "hi") == b"hi"
            assert await say("SELECT", "0") == "OK"

    asyncio.run(scenario())


def test_waiting_until_writes_are_durable() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=None) as home:  # nothing is durable before the flush below
            say = home.talker()
            assert await say("WAITAOF", "1", "0", "0") == [1, 0]
            await say("SET", "a", "1")
            assert await say("WAITAOF", "1", "0", "1") == [0, 0]
            assert await say("WAITAOF", "0", "0", "0") == [0, 0]
            answer, _ = await asyncio.gather(say("WAITAOF", "1", "1", "0"), home.db.flush())
            assert answer == [1, 0]
            assert home.db.status.durable_seq == 1

    asyncio.run(scenario())


def test_the_names_of_commands_stand_once() -> None:
    assert {*COMMANDS, "other"} == set(RESP_COMMANDS)


def test_every_command_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert [name for name in COMMANDS if f"`{name.upper()}" not in page] == []


def test_a_short_command_is_not_answered_with_a_long_list() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert len(await say("COMMAND", "INFO", *["get"] * 1024)) == 1024
            for word in ("INFO", "DOCS", "LIST"):
                with pytest.raises(RespFailure, match="at most 1024 command names"):
                    await say("COMMAND", word, *["get"] * 1025)

    asyncio.run(scenario())
