"""Held sequence numbers: their holders, and the versions that flushes keep for them."""

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shale
from shale.engine.read.active_seqs import ActiveSeqs, Held
from shale.engine.read.lookup import get
from shale.store.memory import MemoryStore


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["hold", "close", "drop"]))))
def test_the_oldest_is_the_lowest_that_is_still_held(steps: list[tuple[int, str]]) -> None:
    active, held = ActiveSeqs(), list[Held]()
    for seq, step in steps:
        if step == "hold":
            held.append(active.hold(seq))
        elif held:
            gone = held.pop(seq % len(held))
            if step == "close":
                gone.close()
                gone.close()
            del gone
        assert active.oldest() == min((each.seq for each in held), default=None)
        assert len(active) == len(held)


@pytest.mark.parametrize("wal_enabled", [True, False])
def test_a_flush_keeps_what_is_visible_at_a_held_seq(wal_enabled: bool) -> None:
    settings: dict[str, Any] = {"flush_interval": 0, "wal_enabled": wal_enabled}

    async def story() -> None:
        async with shale.Db.open("db", store=MemoryStore(), **settings) as db:
            for value in (b"1", b"2"):
                await db.put(b"k", value)
            held = db._writer.active.hold(db.status.last_seq)
            for value in (b"3", b"4"):
                await db.put(b"k", value)
            await db.flush("memtable")
            assert db.status.manifest.recent_snapshot_min_seq == (2 if wal_enabled else 0)
            assert [await value_at(db, seq) for seq in (2, 3, 4)] == [b"2", b"3", b"4"]
            held.close()
            await db.put(b"k", b"5")
            await db.put(b"k", b"6")
            await db.flush("memtable")
            assert db.status.manifest.recent_snapshot_min_seq == (6 if wal_enabled else 4)

    anyio.run(story)


async def value_at(db: shale.Db, seq: int) -> bytes | None:
    entry = await get(db._writer.views.view, b"k", seq)
    return None if entry is None else entry.value
