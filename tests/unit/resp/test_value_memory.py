"""Commands on many keys keep few of their values in memory."""

import asyncio
from typing import Any

import pytest

from shale.engine.read.reads import Reads
from shale.engine.scan.scan import Scan
from tests.unit.resp.harness import Harness, RespFailure, harness

VALUE = b"v" * 700_000
KEYS = [f"k{number:03d}" for number in range(40)]


async def _filled(home: Harness) -> None:
    for key in KEYS:
        await home.db.put(key.encode(), VALUE)
    await home.db.put(b"large", 4 * VALUE)


@pytest.mark.parametrize("is_transaction", [False, True], ids=["alone", "transaction"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("EXISTS", *KEYS, "none", "large", "large"), 42),
        (("TOUCH", *KEYS[:3]), 3),
        (("DEL", *KEYS, "none", "large"), 41),
        (("UNLINK", *KEYS[:2]), 2),
        (("MSETNX", *[word for key in ["none", *KEYS] for word in (key, "1")]), 0),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_a_command_that_needs_no_values_keeps_few(
    words: tuple[str, ...], expected: int, is_transaction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    get_many = Reads.get_many

    async def noted(self: Any, keys: Any, **options: Any) -> Any:
        values = await get_many(self, keys, **options)
        sizes.append(sum(len(value or b"") for value in values))
        return values

    monkeypatch.setattr(Reads, "get_many", noted)

    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            await _filled(home)
            say = home.talker()
            if is_transaction:
                await say("MULTI")
                await say(*words)
                assert await say("EXEC") == [expected]
            else:
                assert await say(*words) == expected
            assert 0 < max(sizes) <= 4 * len(VALUE)
            assert [size for size in sizes if size > 1 << 20] in ([], [4 * len(VALUE)])

    asyncio.run(scenario())


def test_a_random_key_reads_few_large_values(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    next_batch = Scan.next_batch

    async def noted(self: Scan, size: int, **options: Any) -> Any:
        rows = await next_batch(self, size, **options)
        sizes.append(sum(len(row.value) for row in rows))
        return rows

    monkeypatch.setattr(Scan, "next_batch", noted)

    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            await _filled(home)
            for _ in range(60):
                assert (await home.talker()("RANDOMKEY")).decode() in [*KEYS, "large"]
            assert max(sizes) <= (1 << 20) + 4 * len(VALUE)

    asyncio.run(scenario())


def test_many_values_take_the_memory_of_their_reply_only() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            await _filled(home)
            scans = home.backend.memory.scans
            scans.capacity_bytes = 16 << 20
            scans.note(8 << 20)
            say = home.talker()
            async with asyncio.timeout(60):
                assert await say("MGET", "k000", "k001", "none", "k001") == [VALUE, VALUE, None, VALUE]
            assert say.session.rows.reserved.size_bytes == 3 * 3 * len(VALUE)

    asyncio.run(scenario())


def test_too_many_values_are_refused_before_they_take_memory() -> None:
    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            await _filled(home)
            home.backend.memory.responses.capacity_bytes = 2 << 20
            scans = home.backend.memory.scans
            scans.capacity_bytes = 16 << 20
            scans.note(scans.capacity_bytes)
            say = home.talker()
            async with asyncio.timeout(60):
                for keys in (KEYS, ["k000"] * 9):
                    with pytest.raises(RespFailure, match="the values together are larger than 2097152 bytes"):
                        await say("MGET", *keys)

    asyncio.run(scenario())
