"""Two processes that clone to one path: the range and the first manifest are of one attempt."""

from contextlib import suppress

import pytest

from shale.admin.clones import source
from shale.errors import InvalidDbState
from shale.format.names import gc_prefix, visible_range_key
from shale.protocol.visible_range import read_visible_range
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, CasMode, KeyRange
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore, Pause

LEFT, RIGHT = KeyRange.half_open(None, b"m"), KeyRange.half_open(b"m", None)
ROWS = {LEFT: {"b": "1"}, RIGHT: {"n": "2"}, EVERYTHING: {"b": "1", "n": "2"}}
PAIRS = [(LEFT, RIGHT), (RIGHT, EVERYTHING), (EVERYTHING, LEFT)]
pytestmark = pytest.mark.anyio


class TwoPhase(MemoryStore):
    """A store of the two-phase mode, as far as the range of a clone matters."""

    cas = CasMode.TWO_PHASE


class KillingWrites(KillingStore):
    """A store of a process that ends at a chosen write."""

    def __init__(self, store: ObjectStore, countdown: Countdown) -> None:
        super().__init__(store, countdown)
        for read in ("get", "get_if_changed", "get_range", "head", "list", "list_pages"):
            setattr(self, read, getattr(store, read))


@pytest.fixture
async def first() -> MemoryStore:
    """A store with a database that has rows in both ranges."""
    store = MemoryStore(url="memory://main/")
    await write(store, {"b": "1", "n": "2"})
    return store


def copied(store: MemoryStore) -> MemoryStore:
    """Return a store of the same kind with the same objects."""
    made = type(store)(url=store.url)
    made.objects.update(store.objects)
    return made


async def clone(store: ObjectStore, keys: KeyRange) -> bool:
    """Create the clone; return whether it was not refused because of its range."""
    try:
        async with admin(store, "clone") as made:
            await made.clones.create(source("db", start=keys.first_key, end=keys.end_key))
    except InvalidDbState as error:
        if "the clone at clone shows" not in str(error):
            raise
        return False
    return True


async def requests_of(first: MemoryStore, keys: KeyRange) -> int:
    """Return the number of requests of a clone."""
    counted = Countdown()
    assert await clone(KillingStore(copied(first), counted), keys)
    return counted.requests


async def require_complete(store: MemoryStore, keys: KeyRange) -> None:
    """Check that the clone has these keys only, and no object of an attempt."""
    assert (await read_visible_range(store, "clone") or EVERYTHING) == keys
    assert await rows(store, "clone") == ROWS[keys]
    assert [meta.key for meta in await store.list(gc_prefix("clone"))] == [visible_range_key("clone")]
    async with admin(store, "clone") as made:
        assert (await made.verify()).findings == ()


async def require_finished(store: MemoryStore, keys: KeyRange, other: KeyRange) -> KeyRange:
    """Complete an interrupted clone with one range or, if it is refused, with another; return the one that it has."""
    has = keys if await clone(store, keys) else other
    assert has == keys or await clone(store, other)
    assert (await read_visible_range(store, "clone") or EVERYTHING) == has
    assert await rows(store, "clone") == ROWS[has]
    return has


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "fast"), PAIRS, ids=str)
async def test_another_process_creates_the_clone_with_another_range_meanwhile(
    first: MemoryStore, slow: KeyRange, fast: KeyRange
) -> None:
    await require_one_winner(first, slow, fast)


@pytest.mark.slow
async def test_another_process_creates_the_clone_in_a_store_without_conditions() -> None:
    store = TwoPhase(url="memory://main/")
    await write(store, {"b": "1", "n": "2"})
    await require_one_winner(store, LEFT, RIGHT)


async def require_one_winner(first: MemoryStore, slow: KeyRange, fast: KeyRange) -> None:
    """Create the clone by another process before each request of the slow one."""
    winners = set()
    for at in range(1, await requests_of(first, slow) + 1):
        store = copied(first)
        was_first: list[bool] = []

        async def create(store: MemoryStore = store, was_first: list[bool] = was_first) -> None:
            was_first.append(await clone(store, fast))

        has_slow = await clone(KillingStore(store, Pause(at, create)), slow)
        assert was_first == [not has_slow], f"request {at}"
        winner = slow if has_slow else fast
        await require_complete(store, winner)
        winners.add(winner)
    assert winners == {slow, fast}


@pytest.mark.slow
@pytest.mark.parametrize("keys", ROWS, ids=str)
async def test_two_processes_with_one_range_succeed(first: MemoryStore, keys: KeyRange) -> None:
    for at in range(1, await requests_of(first, keys) + 1):
        store = copied(first)

        async def create(store: MemoryStore = store) -> None:
            assert await clone(store, keys)

        assert await clone(KillingStore(store, Pause(at, create)), keys), f"request {at}"
        await require_complete(store, keys)


@pytest.mark.slow
@pytest.mark.parametrize("other", [LEFT, RIGHT], ids=["same range", "other range"])
async def test_another_process_is_killed_meanwhile(first: MemoryStore, other: KeyRange) -> None:
    """It starts before each request of the slow one and ends after each of its own writes."""
    counted = Countdown()
    assert await clone(KillingWrites(copied(first), counted), other)
    winners = set()
    for at in range(1, await requests_of(first, LEFT) + 1):
        for last in range(1 + at % 4, counted.requests + 1, 4):
            store = copied(first)

            async def start(store: MemoryStore = store, last: int = last) -> None:
                with suppress(Killed):
                    await clone(KillingWrites(store, Countdown(last, after_effect=True)), other)

            has_slow = await clone(KillingStore(store, Pause(at, start)), LEFT)
            assert has_slow or other != LEFT, (at, last)
            has = await require_finished(store, LEFT, other)
            assert (has == LEFT) == has_slow, (at, last)
            winners.add(has)
    assert winners == {LEFT, other}


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("keys", "other"), PAIRS, ids=str)
async def test_an_interrupted_clone_is_completed_with_its_range_only(
    first: MemoryStore, keys: KeyRange, other: KeyRange, after_effect: bool
) -> None:
    requests = await requests_of(first, keys)
    found = set()
    for last in range(1, requests + 1):
        store = copied(first)
        with suppress(Killed):  # The last requests delete what the clone does not need.
            await clone(KillingStore(store, Countdown(last, after_effect=after_effect)), keys)
        begun = copied(store)
        found.add(await require_finished(store, other, keys))
        assert await require_finished(begun, keys, keys) == keys
    assert found == {keys, other}
