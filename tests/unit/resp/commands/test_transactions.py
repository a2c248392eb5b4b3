"""MULTI, EXEC and WATCH."""

import asyncio

import pytest

from shale.errors import CorruptionError
from shale.resp.options import RespOptions
from shale.store.memory import MemoryStore
from tests.unit.resp.harness import Harness, RespFailure, Talker, harness


def test_a_transaction_answers_in_order_and_sees_its_own_writes() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "a", "0")
            assert await say("MULTI") == "OK"
            for words in (("GET", "a"), ("SET", "a", "1"), ("GET", "a"), ("DEL", "a", "b"), ("EXISTS", "a")):
                assert await say(*words) == "QUEUED"
            await say("MSET", "b", "2", "c", "3")
            await say("SCAN", "0", "COUNT", "100")
            await say("PING")
            assert await home.talker()("GET", "a") == b"0"
            answers = await say("EXEC")
            assert answers == [b"0", "OK", b"1", 1, 0, "OK", [b"0", [b"b", b"c"]], "PONG"]
            assert await home.talker()("MGET", "a", "b", "c") == [None, b"2", b"3"]
            assert home.db.status.last_seq == 2

    asyncio.run(scenario())


def test_a_transaction_sees_when_its_own_writes_expire() -> None:
    async def scenario() -> None:
        async with harness(default_ttl_ms=5_000) as home:
            say = home.talker()
            await say("SET", "old", "1", "PX", "100")
            await say("MULTI")
            for words in (
                ("INCR", "old"),
                ("PTTL", "old"),
                ("SET", "new", "1"),
                ("INCR", "new"),
                ("PTTL", "new"),
                ("PEXPIRE", "new", "70"),
                ("APPEND", "new", "0"),
                ("SET", "past", "1", "PXAT", "1"),
                ("EXISTS", "past"),
                ("SET", "kept", "1", "PX", "40"),
                ("SET", "kept", "2", "KEEPTTL"),
                ("PERSIST", "old"),
            ):
                assert await say(*words) == "QUEUED"
            answers = await say("EXEC")
            assert answers == [2, 100, "OK", 2, 5_000, 1, 2, "OK", 0, "OK", "OK", 1]
            assert [await say("PTTL", key) for key in ("old", "new", "past", "kept")] == [-1, 70, -2, 40]

    asyncio.run(scenario())


def test_a_command_that_fails_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MULTI")
            await say("SET", "a", "1", "BAD")
            await say("SET", "", "1")
            await say("SET", "a", "2")
            answers = await say("EXEC")
            assert [str(answer) for answer in answers[:1]] == ["ERR syntax error"]
            assert isinstance(answers[1], RespFailure)
            assert answers[2] == "OK"
            assert await say("GET", "a") == b"2"

    asyncio.run(scenario())


class Away(MemoryStore):
    """A store whose SSTs cannot be read while ``is_away``."""

    is_away = False

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        if self.is_away and "/compacted/" in key:
            raise CorruptionError("a torn block")
        return await super().get_range(key, start, end)


def test_nothing_of_a_transaction_is_done_if_the_store_cannot_answer_a_part_of_it() -> None:
    """A row must not be written under its new key and remain under the old one."""

    async def scenario() -> None:
        store = Away()
        async with harness(store=store, block_cache_bytes=0) as home:
            say = home.talker()
            await say("SET", "old", "1")
            await home.db.flush("memtable")
            store.is_away = True
            last_seq = home.db.status.last_seq
            await say("MULTI")
            await say("SET", "new", "1")
            await say("DEL", "old")
            with pytest.raises(RespFailure, match=r"^ERR corrupt data: .*torn"):
                await say("EXEC")
            assert home.db.status.last_seq == last_seq
            assert [name for name, count in home.backend.failures.items() if count] == ["del", "exec"]
            store.is_away = False
            assert await say("MGET", "old", "new") == [b"1", None]

    asyncio.run(scenario())


def test_answers_of_a_transaction_are_bounded() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_inflight_bytes=1 << 20)) as home:
            say = home.talker()
            await say("SET", "a", b"v" * (300 << 10))
            await say("MULTI")
            await say("SET", "b", "1")
            for _ in range(4):
                await say("GET", "a")
            with pytest.raises(RespFailure, match="larger than 1048576 bytes"):
                await say("EXEC")
            assert await say("EXISTS", "b") == 0

    asyncio.run(scenario())


def test_a_command_that_cannot_be_queued_stops_all() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MULTI")
            await say("SET", "a", "1")
            for words in (("NOPE",), ("GET",), ("HELLO", "3")):
                with pytest.raises(RespFailure, match=r"^ERR "):
                    await say(*words)
            with pytest.raises(RespFailure, match=r"^EXECABORT "):
                await say("EXEC")
            assert await say("GET", "a") is None

    asyncio.run(scenario())


def test_out_of_order() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            for words in (("EXEC",), ("DISCARD",)):
                with pytest.raises(RespFailure, match="without MULTI"):
                    await say(*words)
            await say("MULTI")
            with pytest.raises(RespFailure, match="nested"):
                await say("MULTI")
            with pytest.raises(RespFailure, match="inside MULTI"):
                await say("WATCH", "a")
            await say("SET", "a", "1")
            assert await say("DISCARD") == "OK"
            assert await say("GET", "a") is None
            await say("MULTI")
            assert await say("EXEC") == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "is_run"),
    [
        (("SET", "w", "same"), False),
        (("DEL", "w"), False),
        (("SET", "other", "1"), True),
        (("DEL", "other"), True),
        (("SET", "w", "1", "NX"), True),
        (("GET", "w"), True),
    ],
)
def test_a_watched_key_that_was_written_stops_the_transaction(change: tuple[str, ...], is_run: bool) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say, other = home.talker(), home.talker()
            await say("SET", "w", "same")
            await say("WATCH", "w", "absent")
            await other(*change)
            await say("MULTI")
            await say("SET", "mine", "1")
            assert await say("EXEC") == (["OK"] if is_run else None)
            assert await say("EXISTS", "mine") == int(is_run)
            await other("SET", "w", "again")
            await say("MULTI")
            assert await say("EXEC") == []  # nothing is watched any more

    asyncio.run(scenario())


def test_a_watched_key_that_expires_or_appears_is_a_change_and_unwatch_forgets() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "w", "1", "PX", "10")
            await say("WATCH", "w")
            home.clock.ms += 10
            await say("MULTI")
            assert await say("EXEC") is None
            await say("WATCH", "w")
            await home.talker()("SET", "w", "2")
            await say("MULTI")
            assert await say("EXEC") is None
            await say("WATCH", "w")
            await home.talker()("SET", "w", "3")
            await say("UNWATCH")
            await say("MULTI")
            assert await say("EXEC") == []

    asyncio.run(scenario())


async def add_one(say: Talker, key: str) -> int:
    """Increment a counter under WATCH; return the number of restarts."""
    for attempt in range(10_000):
        await say("WATCH", key)
        number = int(await say("GET", key))
        await asyncio.sleep(0)  # the way to the client and back, in which others have their turn
        await say("MULTI")
        await say("SET", key, number + 1)
        if await say("EXEC") is not None:
            return attempt
    raise AssertionError("never")


def test_counting_by_many_loses_nothing() -> None:
    """Compare and set, while the counter is flushed and read again."""

    async def count(home: Harness, times: int) -> int:
        say = home.talker()
        return sum([await add_one(say, "n") for _ in range(times)])

    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            await home.talker()("SET", "n", "0")
            await home.db.flush("memtable")
            tries = [count(home, 10) for _ in range(10)]
            repeated = await asyncio.gather(*tries, flush_now_and_then(home))
            assert await home.talker()("GET", "n") == b"100"
            assert sum(repeated) > 0

    async def flush_now_and_then(home: Harness) -> int:
        for _ in range(5):
            await home.db.flush("memtable")
        return 0

    asyncio.run(scenario())


def test_reads_of_a_transaction_are_of_one_moment() -> None:
    """Two keys are always written together; a transaction that reads both, one from the store, sees them equal."""

    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:
            write, say = home.talker(), home.talker()
            await write("MSET", "a", "0", "z", "0")
            await home.db.flush("memtable")
            for number in range(1, 30):
                await say("MULTI")
                await say("GET", "a")
                await say("GET", "z")
                answers, _ = await asyncio.gather(say("EXEC"), write("MSET", "a", number, "z", number))
                assert answers[0] == answers[1]
                if number % 5 == 0:
                    await home.db.flush("memtable")

    asyncio.run(scenario())


def test_a_queue_has_bounds() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_command_bytes=1000, max_batch_rows=4)) as home:
            say = home.talker()
            await say("MULTI")
            with pytest.raises(RespFailure, match="too large"):
                await say("SET", "a", "x" * 1000)
            with pytest.raises(RespFailure, match="EXECABORT"):
                await say("EXEC")
            await say("MULTI")
            for _ in range(4):
                assert await say("PING") == "QUEUED"
            with pytest.raises(RespFailure, match="too large"):
                await say("PING")
            assert home.backend.errors["ping"] == 1

    asyncio.run(scenario())


def test_watched_keys_have_bounds() -> None:
    async def scenario() -> None:
        async with harness(options=RespOptions(max_command_bytes=1000, max_batch_rows=4)) as home:
            say = home.talker()
            assert await say("WATCH", "a", "b", "a") == "OK"
            assert await say("WATCH", "c", "d") == "OK"
            with pytest.raises(RespFailure, match="at most 4 keys can be watched"):
                await say("WATCH", "e")
            await say("UNWATCH")
            with pytest.raises(RespFailure, match="the watched keys are too large"):
                await say("WATCH", "x" * 1000)
            assert await say("WATCH", "a", "b", "c", "d") == "OK"

    asyncio.run(scenario())
