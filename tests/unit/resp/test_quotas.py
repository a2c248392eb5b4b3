"""Quotas of the Redis port: what counts, and the reply to a command over the quota."""

import asyncio

import pytest

from shale.service.access import Rates, Role
from tests.unit.resp.harness import RespFailure, Talker, harness

TOKENS = {"w1": Role.WRITE, "w2": Role.WRITE}
ONE_REQUEST = {Role.WRITE: Rates(requests=0.001)}
REFUSED = r"^TRYAGAIN quotas.write is used up, and nothing was done: try again after \d+ s$"


async def refused(say: Talker, *words: str) -> None:
    with pytest.raises(RespFailure, match=REFUSED):
        await say(*words)


def test_a_password_over_its_quota_is_refused_on_all_its_connections_and_another_is_not() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS, rates=ONE_REQUEST) as home:
            one, same, other = home.talker(), home.talker(), home.talker()
            for say, words in ((one, ("w1",)), (same, ("read", "w1")), (other, ("w2",))):
                assert await say("AUTH", *words) == "OK"
            assert await one("SET", "k", "1") == "OK"
            await refused(one, "SET", "k", "2")
            await refused(same, "GET", "k")
            assert home.backend.errors["set"] == home.backend.errors["get"] == 1
            assert not any(home.backend.failures.values())
            assert await other("GET", "k") == b"1"
            await refused(other, "PING")
            assert await other("AUTH", "w1") == "OK"
            home.clock.sleep(1000)
            assert await one("GET", "k") == b"1"

    asyncio.run(scenario())


def test_clients_of_an_open_port_share_the_quota_of_the_role_that_a_command_needs() -> None:
    async def scenario() -> None:
        async with harness(rates=ONE_REQUEST) as home:
            one, other = home.talker(), home.talker()
            assert await one("SET", "k", "1") == "OK"
            await refused(other, "SET", "k", "2")
            assert await other("GET", "k") == b"1"

    asyncio.run(scenario())


def test_a_transaction_with_a_refused_command_is_aborted_and_its_commands_are_not_executed() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS, rates=ONE_REQUEST) as home:
            say = home.talker()
            await say("AUTH", "w1")
            assert await say("MULTI") == "OK"
            assert await say("SET", "k", "1") == "QUEUED"
            await refused(say, "SET", "l", "1")
            with pytest.raises(RespFailure, match=r"^EXECABORT"):
                await say("EXEC")
            assert home.db.status.last_seq == 0
            assert await say("MULTI") == "OK"
            assert await say("DISCARD") == "OK"

    asyncio.run(scenario())


def test_bytes_of_arguments_count() -> None:
    async def scenario() -> None:
        async with harness(tokens=TOKENS, rates={Role.WRITE: Rates(size_bytes=10)}) as home:
            say = home.talker()
            await say("AUTH", "w1")
            assert await say("SET", "k", "v" * 106) == "OK"
            await refused(say, "GET", "k")
            home.clock.sleep(9)
            await refused(say, "GET", "k")
            home.clock.sleep(2)
            assert await say("STRLEN", "k") == 106

    asyncio.run(scenario())
