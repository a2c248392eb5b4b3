"""Ranges of scans that include or exclude their bounds."""

from itertools import product
from typing import Any

import anyio
import pytest

import shale
from shale import sync
from shale.errors import TransactionConflict
from shale.store.memory import MemoryStore

KEYS = [b"a", b"a\0", b"ab", b"b", b"b\0", b"c"]
BOUNDS = [None, b"a", b"a\0", b"aa", b"b", b"d"]


def expected(start: bytes | None, stop: bytes | None, prefix: bytes, options: dict[str, Any]) -> list[bytes]:
    def lies_in(key: bytes) -> bool:
        above = start is None or key > start or (key == start and options["start_inclusive"])
        below = stop is None or key < stop or (key == stop and options["stop_inclusive"])
        return above and below and key.startswith(prefix)

    return [key for key in KEYS if lies_in(key)]


@pytest.mark.parametrize("flush", [False, True], ids=["memory", "sst"])
def test_every_kind_of_bound(flush: bool) -> None:
    async def run() -> None:
        async with shale.Db.open("db", store=MemoryStore()) as db:
            for key in KEYS:
                await db.put(key, b"v")
            if flush:
                await db.flush("memtable")
            for start, stop, prefix, first, last, reverse in product(
                BOUNDS, BOUNDS, (b"", b"a"), (True, False), (True, False), (True, False)
            ):
                options: Any = {"start_inclusive": first, "stop_inclusive": last}
                rows = [
                    row.key async for row in db.scan(start=start, stop=stop, prefix=prefix, reverse=reverse, **options)
                ]
                wanted = expected(start, stop, prefix, options)
                assert rows == (wanted[::-1] if reverse else wanted), (start, stop, prefix, options)

    anyio.run(run)


def test_a_serializable_transaction_conflicts_at_the_included_end_only() -> None:
    async def run() -> None:
        async with shale.Db.open("db", store=MemoryStore()) as db:
            for stop_inclusive in (True, False):
                transaction = await db.transaction("serializable")
                assert [
                    row async for row in transaction.scan(start=b"a", stop=b"b", stop_inclusive=stop_inclusive)
                ] == []
                transaction.put(b"z", b"1")
                await db.put(b"b", b"theirs")
                if stop_inclusive:
                    with pytest.raises(TransactionConflict):
                        await transaction.commit()
                else:
                    await transaction.commit()
                await db.delete(b"b")

    anyio.run(run)


def test_the_blocking_scan_takes_them_too() -> None:
    with sync.Db.open("db", store="memory://closed-ranges") as db:
        for key in KEYS:
            db.put(key, b"v")
        assert [row.key for row in db.scan(start=b"a", stop=b"b", start_inclusive=False, stop_inclusive=True)] == KEYS[
            1:4
        ]
        assert [entry.key for entry in db.scan_prefix_by_recency(b"a")] == KEYS[:3]
