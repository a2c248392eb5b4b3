"""Two processes that restore to one path: the range and the first manifest are of one backup."""

from itertools import permutations

import pytest

from shale.admin.clones import source
from shale.errors import InvalidDbState
from shale.protocol.visible_range import read_visible_range
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, KeyRange
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, KillingStore, Pause

RANGES = {"left": KeyRange.half_open(None, b"m"), "right": KeyRange.half_open(b"m", None), "all": EVERYTHING}
ROWS = {"left": {"b": "1"}, "right": {"n": "2"}, "all": {"b": "1", "n": "2"}}
pytestmark = pytest.mark.anyio


@pytest.fixture
async def backups() -> MemoryStore:
    """A store with a backup of a clone of each range, in a place that is named after it."""
    main, backups = MemoryStore(url="memory://main/"), MemoryStore(url="memory://backups/")
    await write(main, ROWS["all"])
    for name, keys in RANGES.items():
        async with admin(main, name) as made:
            await made.clones.create(source("db", start=keys.first_key, end=keys.end_key))
            await made.backups(store=backups, path=name).create()
    return backups


async def restore(store: ObjectStore, backups: MemoryStore, name: str) -> bool:
    """Restore a backup; return whether no other one was restored there."""
    try:
        async with admin(store) as made:
            await made.backups(store=backups, path=name).restore()
    except InvalidDbState:
        return False
    return True


@pytest.mark.parametrize(("slow", "fast"), [*permutations(ROWS, 2)])
async def test_another_process_restores_a_backup_of_another_range_meanwhile(
    backups: MemoryStore, slow: str, fast: str
) -> None:
    counted = Countdown()
    assert await restore(KillingStore(MemoryStore(), counted), backups, slow)
    winners = set()
    for at in range(1, counted.requests + 1):
        store = MemoryStore()
        was_first: list[bool] = []

        async def other(store: MemoryStore = store, was_first: list[bool] = was_first) -> None:
            was_first.append(await restore(store, backups, fast))

        has_slow = await restore(KillingStore(store, Pause(at, other)), backups, slow)
        assert was_first == [not has_slow], f"request {at}"
        winner = slow if has_slow else fast
        assert await rows(store) == ROWS[winner], f"request {at}"
        assert (await read_visible_range(store, "db") or EVERYTHING) == RANGES[winner], f"request {at}"
        winners.add(winner)
    assert winners == {slow, fast}
