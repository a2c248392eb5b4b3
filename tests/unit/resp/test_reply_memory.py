"""Large replies wait for memory before they are made, and before their command changes anything."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shale.concurrency.byte_budget import ByteBudget
from shale.engine.read.reads import Reads
from shale.engine.txn.transaction import Transaction
from shale.resp.options import RespOptions
from tests.unit.resp.harness import Harness, Talker, harness

LARGE = b"v" * (3 << 20)
CLIENTS = 40
TURNS = 200
"""More than any of these commands needs in memory, if it does not wait."""


async def _full_home(home: Harness) -> ByteBudget:
    """Write large rows; take all memory of scans."""
    await home.db.put(b"k", LARGE)
    for number in range(60):
        await home.db.put(b"long%02d" % number + b"x" * 60_000, b"1")
    scans = home.backend.memory.scans
    scans.capacity_bytes = 32 << 20
    scans.note(scans.capacity_bytes)
    return scans


async def _home_with_memory(home: Harness, size_bytes: int) -> ByteBudget:
    """Write large rows; leave so much memory for scans."""
    scans = await _full_home(home)
    scans.give_back(scans.capacity_bytes)
    scans.capacity_bytes = size_bytes
    return scans


async def _started(talker: Talker, words: Sequence[str]) -> "asyncio.Task[Any]":
    task = asyncio.create_task(talker(*words))
    for _ in range(TURNS):
        if task.done():
            break
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    "words",
    [
        ("GET", "k"),
        ("GETRANGE", "k", "0", "-1"),
        ("GETDEL", "k"),
        ("GETSET", "k", "new"),
        ("SET", "k", "new", "GET"),
        ("GETEX", "k", "PX", "1000"),
        ("KEYS", "long*"),
        ("SHALE.SCAN", "PREFIX", "k"),
    ],
    ids=" ".join,
)
def test_a_large_reply_waits_for_memory(words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _full_home(home)
            seq = home.db.status.last_seq
            talker = home.talker()
            task = await _started(talker, words)
            assert not task.done()
            assert home.db.status.last_seq == seq, "it has written before its reply has memory"
            scans.give_back(scans.capacity_bytes)
            reply = await task
            assert len(str(reply)) > len(LARGE)
            assert 0 < talker.session.rows.reserved.size_bytes == scans.used_bytes

    asyncio.run(scenario())


@pytest.mark.parametrize("words", [("GETDEL", "k"), ("GETSET", "k", "new"), ("GETEX", "k", "PX", "1000")], ids=" ".join)
def test_a_command_without_memory_for_its_reply_changes_nothing(words: tuple[str, ...]) -> None:
    """The time limit of a request cancels the wait."""

    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _full_home(home)
            task = await _started(home.talker(), words)
            task.cancel()
            await asyncio.wait([task])
            scans.give_back(scans.capacity_bytes)
            row = await home.db.get_row(b"k")
            assert row is not None
            assert (row.value, row.expire_ts, scans.used_bytes) == (LARGE, None, 0)

    asyncio.run(scenario())


def test_replies_of_many_clients_take_turns() -> None:
    """Each client keeps its memory until its reply is sent."""

    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _full_home(home)
            scans.give_back(scans.capacity_bytes)
            running = largest = 0

            async def ask(talker: Talker) -> None:
                nonlocal running, largest
                assert await talker("GETEX", "k") == LARGE
                running += 1
                largest = max(largest, running)
                await asyncio.sleep(0)
                running -= 1
                talker.session.rows.reserved.reduce_to(0)

            await asyncio.gather(*(ask(home.talker()) for _ in range(CLIENTS)))
            assert largest <= scans.capacity_bytes // (2 * len(LARGE))
            assert scans.used_bytes == 0

    asyncio.run(scenario())


def test_a_scan_of_long_keys_ends_before_its_count() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _full_home(home)
            scans.give_back(scans.capacity_bytes)
            cursor, found = await home.talker()("SCAN", "0", "MATCH", "long*", "COUNT", "1000")
            assert cursor != b"0"
            assert 0 < sum(map(len, found)) <= 3 << 20

    asyncio.run(scenario())


SCANS = [
    [("DBSIZE",)],
    [("KEYS", "none*")],
    [("SCAN", "0")],
    [("SHALE.SCAN", "PREFIX", "none")],
    [("RANDOMKEY",)],
    [("FLUSHDB",)],
    [("MULTI",), ("DBSIZE",), ("FLUSHALL",), ("KEYS", "*"), ("EXEC",)],
]


@pytest.mark.parametrize("commands", SCANS, ids=lambda commands: "-".join(name for name, *_ in commands))
def test_a_scan_waits_for_memory_and_gives_it_back(commands: list[tuple[str, ...]]) -> None:
    """Those of all ports share it."""

    async def scenario() -> None:
        async with harness(options=RespOptions(allow_flush=True), flush_interval=60.0) as home:
            scans = await _full_home(home)
            seq = home.db.status.last_seq
            talker = home.talker()
            for words in commands[:-1]:
                await talker(*words)
            task = await _started(talker, commands[-1])
            assert not task.done()
            assert home.db.status.last_seq == seq
            scans.give_back(scans.capacity_bytes)
            await task
            if len(commands) == 1:
                assert scans.used_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("commands", SCANS, ids=lambda commands: "-".join(name for name, *_ in commands))
def test_a_scan_reads_ahead_no_more_than_its_memory(
    commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[object] = []
    for kind in (Reads, Transaction):
        scan = kind.scan

        def noted(self: Any, *, of: Any = scan, **options: Any) -> Any:
            sizes.append(options.get("read_ahead_bytes"))
            return of(self, **options)

        monkeypatch.setattr(kind, "scan", noted)

    async def scenario() -> None:
        async with harness(options=RespOptions(allow_flush=True), flush_interval=60.0) as home:
            home.backend.memory.scans.capacity_bytes = 32 << 20
            await home.db.put(b"k", b"v")
            talker = home.talker()
            for words in commands:
                await talker(*words)
            assert set(sizes) == {1 << 20}

    asyncio.run(scenario())


@pytest.mark.parametrize("words", [("KEYS", "long*"), ("GET", "k"), ("SHALE.SCAN", "PREFIX", "k")], ids=" ".join)
def test_a_reply_takes_no_more_than_all_memory(words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _home_with_memory(home, 4 << 20)
            talker = home.talker()
            await talker(*words)
            assert talker.session.rows.reserved.size_bytes == scans.used_bytes == 4 << 20

    asyncio.run(scenario())


def test_keys_take_the_memory_of_their_reply_only() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            scans = await _home_with_memory(home, 1 << 30)
            talker = home.talker()
            size = sum(map(len, await talker("KEYS", "long*")))
            assert 2 * size < talker.session.rows.reserved.size_bytes < 3 * size
            assert talker.session.rows.reserved.size_bytes == scans.used_bytes

    asyncio.run(scenario())


def test_a_short_part_of_a_large_value_does_not_wait() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            await _full_home(home)
            task = await _started(home.talker(), ("GETRANGE", "k", "-3", "-1"))
            assert await task == b"vvv"

    asyncio.run(scenario())
