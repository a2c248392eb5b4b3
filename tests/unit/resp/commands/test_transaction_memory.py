"""The memory that MULTI and EXEC take: composed values, replies, and turns of the event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import shale
from shale.core.memory_account import MemoryAccount, MemoryPart
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS, WRITER_COMMANDS
from shale.resp.options import RespOptions
from shale.resp.row_reader import RowReader
from shale.resp.session import RespSession
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices
from shale.sst.budget import MemoryBudget
from shale.store.memory import MemoryStore
from shale.store.port import ETag
from shale.telemetry.metrics import Metrics
from tests.loop_rounds import counted_rounds
from tests.unit.resp.harness import Harness, RespFailure, Talker, harness

LIMITS = RespOptions(max_value_bytes=1 << 20, max_command_bytes=2 << 20, max_inflight_bytes=2 << 20)


def test_values_that_a_transaction_composes_are_limited() -> None:
    """Each of the short commands writes a whole value."""

    async def scenario() -> None:
        async with harness(options=LIMITS) as home:
            say = home.talker()
            await say("MULTI")
            for number in range(4):
                await say("SETRANGE", f"k{number}", 600_000, "x")
            with pytest.raises(RespFailure, match="the values of the transaction are larger than 2097152 bytes"):
                await say("EXEC")
            assert await say("EXISTS", "k0", "k1", "k2", "k3") == 0
            await say("MULTI")
            for _ in range(4):
                await say("SETRANGE", "k", 600_000, "x")
            assert await say("EXEC") == [600_001] * 4

    asyncio.run(scenario())


class SlowCommits(MemoryStore):
    """A store whose writes wait, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def put(self, key: str, *args: Any, **options: Any) -> ETag | None:
        await self.is_open.wait()
        return await super().put(key, *args, **options)


@asynccontextmanager
async def _with_slow_commits() -> AsyncIterator[tuple[Harness, SlowCommits]]:
    """Yield a server whose store is closed: writes wait for a flush as soon as there are 2 MiB."""
    store = SlowCommits()
    sizes = {"l0_sst_size_bytes": 1 << 20, "max_unflushed_bytes": 2 << 20}
    async with harness(store=store, options=LIMITS, **sizes) as home:
        store.is_open.clear()
        yield home, store


def test_values_that_transactions_compose_are_limited_together_until_their_commits() -> None:
    async def scenario() -> None:
        async with _with_slow_commits() as (home, store):
            try:
                first, second = home.talker(), home.talker()
                sets = [
                    asyncio.create_task(home.talker()("SET", f"unflushed{number}", "x" * 900_000))
                    for number in range(4)
                ]
                for say in (first, second):
                    await say("MULTI")
                    for number in range(2):
                        await say("SETRANGE", f"k{number}", 900_000, "x")
                waiting = asyncio.create_task(first("EXEC"))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not waiting.done(), "its commit waits for the flush"
                with pytest.raises(
                    RespFailure, match="TRYAGAIN the values of running transactions need too much memory"
                ):
                    await second("EXEC")
                assert home.backend.composed.size_bytes == 2 * 900_001
            finally:
                store.is_open.set()
            assert await waiting == [900_001] * 2
            assert await asyncio.gather(*sets) == ["OK"] * 4
            assert home.backend.composed.size_bytes == 0
            assert home.backend.memory.account.used_bytes(MemoryPart.REQUESTS) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("is_contended", [False, True], ids=["batch", "conflict"])
def test_values_that_commands_compose_are_limited_together_until_they_are_written(is_contended: bool) -> None:
    async def scenario() -> None:
        async with _with_slow_commits() as (home, store):
            try:
                waiting = [
                    asyncio.create_task(home.talker()("SET", f"unflushed{number}", "x" * 900_000))
                    for number in range(4)
                ]
                for number in range(2):
                    waiting.append(asyncio.create_task(home.talker()("SETRANGE", f"k{number}", 900_000, "x")))
                    if is_contended:
                        waiting.append(asyncio.create_task(home.talker()("SET", "other", "x")))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not any(task.done() for task in waiting[4:]), "they wait for the flush"
                assert home.backend.memory.account.used_bytes(MemoryPart.REQUESTS) == 2 * 900_001
                with pytest.raises(RespFailure, match="TRYAGAIN the values of running commands need too much memory"):
                    await home.talker()("SETRANGE", "k2", 900_000, "x")
                assert home.backend.composed.size_bytes == 2 * 900_001
            finally:
                store.is_open.set()
            assert set(await asyncio.gather(*waiting)) == {"OK", 900_001}
            assert await home.talker()("EXISTS", "k0", "k1", "k2") == 2
            assert home.backend.composed.size_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "commands",
    [
        [("STRLEN", "one"), ("STRLEN", "two")],
        [("MULTI",), ("STRLEN", "one"), ("STRLEN", "two"), ("EXEC",)],
        [("MULTI",), ("GET", "one"), ("GET", "two"), ("EXEC",)],
        [("MULTI",), ("APPEND", "one", "x"), ("APPEND", "two", "x"), ("EXEC",)],
    ],
    ids=lambda commands: "-".join(name for name, *_ in commands),
)
def test_a_client_does_not_wait_for_the_memory_of_its_own_command_before(commands: list[tuple[str, ...]]) -> None:
    """The blocks of the second value are read in tasks of their own, which take memory of their own."""
    memory = ProcessMemory(MemoryAccount(1 << 40), 8 << 20)
    cache = MemoryBudget(1 << 20, large_values=memory.large_values)
    store = MemoryStore()

    async def scenario() -> None:
        async with shale.Db.open("db", store=store) as db:
            for keys in ((b"one", b"two"), (b"two",)):
                for key in keys:
                    await db.put(key, b"v" * 1_200_000)
                await db.put(b"other", b"")
                await db.flush("memtable")
        async with shale.Db.open("db", store=store, cache=cache) as db:
            backend = Backend(db, Env.system(), RespOptions(), PortServices(memory=memory), COMMANDS, metrics=Metrics())
            say = Talker(RespSession(backend, WRITER_COMMANDS))
            async with asyncio.timeout(60):
                answers = [await say(*words) for words in commands]
            found = answers[-1] if commands[0] == ("MULTI",) else answers
            assert [each if isinstance(each, int) else len(each) for each in found] in (
                [1_200_000] * 2,
                [1_200_001] * 2,
            )

    asyncio.run(scenario())


def test_large_replies_of_a_transaction_wait_for_memory_of_their_own() -> None:
    """The second run has it; the first one only measures them, and writes nothing."""

    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "v" * 900_000)
            for count, is_large in ((1, False), (3, True)):
                await say("MULTI")
                for _ in range(count):
                    await say("GET", "a")
                await say("INCR", "n")
                answers = await say("EXEC")
                assert [len(answer) for answer in answers[:-1]] == [900_000] * count
                assert (say.session.rows.reserved.size_bytes > 2 * count * 900_000) is is_large
            assert await say("GET", "n") == b"2"

    asyncio.run(scenario())


def test_others_run_between_many_commands_of_a_transaction() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MULTI")
            for _ in range(10_240):
                await say("GET", "a")
            async with counted_rounds() as rounds:
                assert await say("EXEC") == [None] * 10_240
            assert rounds.count >= 20

    asyncio.run(scenario())


def test_replies_that_grow_between_the_runs_of_a_transaction_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say, other = home.talker(), home.talker()
            await say("SET", "a", "v" * 900_000)
            await say("MULTI")
            for _ in range(3):
                await say("GET", "a")
            await say("INCR", "n")
            take = say.session.rows.reserved.take

            async def take_later(size_bytes: int) -> None:
                await other("APPEND", "a", "v")
                await take(size_bytes)

            monkeypatch.setattr(type(say.session.rows.reserved), "take", lambda _, size_bytes: take_later(size_bytes))
            with pytest.raises(RespFailure, match="TRYAGAIN the replies of the transaction grew"):
                await say("EXEC")
            assert await other("EXISTS", "n") == 0
            assert await other("STRLEN", "a") == 900_008

    asyncio.run(scenario())


@pytest.mark.parametrize(("response_mib", "runs"), [(16, 2), (256, 1)])
def test_replies_are_measured_first_if_they_are_large_for_the_memory_of_responses(
    response_mib: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction kept up to 1 MiB of replies while it gave way to others, however little memory there was."""

    async def scenario() -> None:
        async with harness() as home:
            home.backend.memory = ProcessMemory(response_bytes=response_mib << 20)
            say = home.talker()
            await say("SET", "a", "v" * 20_000)
            await say("MULTI")
            for _ in range(3):
                await say("GET", "a")
            reserved: list[int] = []
            reserve = RowReader.reserve

            async def noted(rows: RowReader, size_bytes: int) -> None:
                reserved.append(size_bytes)
                await reserve(rows, size_bytes)

            monkeypatch.setattr(RowReader, "reserve", noted)
            assert await say("EXEC") == [b"v" * 20_000] * 3
            assert [size > 180_000 for size in reserved] == [False, True][:runs]

    asyncio.run(scenario())


def test_replies_have_no_more_bytes_than_memory_has_for_responses() -> None:
    async def scenario() -> None:
        async with harness() as home:
            home.backend.memory = ProcessMemory(response_bytes=4 << 20)
            say = home.talker()
            await say("SET", "a", "v" * 900_000)
            await say("MULTI")
            for words in [("INCR", "n"), *[("GET", "a")] * 3]:
                await say(*words)
            with pytest.raises(RespFailure, match="the replies of the transaction are larger than 2097152 bytes"):
                await say("EXEC")
            assert await say("EXISTS", "n") == 0

    asyncio.run(scenario())
