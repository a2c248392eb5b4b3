"""The locks of a prune: of this release, and the one lock that earlier releases know."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shale.backup.backup_store import BackupStore
from shale.backup.planner import PruneRules
from shale.backup.prune import prune
from shale.errors import InvalidDbState, UnavailableError
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import OVERWRITE, ObjectMeta
from shale.store.retry import RetryingStore
from shale.testing.faulty_store import Fault, FaultyStore, Rule
from shale.testing.virtual_loop import VirtualLoop
from tests.unit.backup.databases import environment
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore
from tests.unit.backup.late_deletes import LateDeletes
from tests.unit.engine.write.timing import in_virtual_time

pytestmark = pytest.mark.anyio
ALL = PruneRules(keep=0)
EARLIER = "b/prune.lock"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def place(store: object, seed: int = 1) -> BackupStore:
    """Return the backups as a process of its own sees them."""
    return BackupStore(store, "b", environment(seed))  # type: ignore[arg-type]


async def refuses_all(store: MemoryStore) -> bool:
    """Return whether backups and other prunes are refused; a prune that is refused leaves nothing."""
    before = sorted(store.objects)
    with pytest.raises(InvalidDbState, match="a prune runs"):
        await place(store).require_no_prune()
    with pytest.raises(InvalidDbState, match="another prune runs"):
        await prune(place(store, 7), ALL, environment(7))
    return sorted(store.objects) == before


async def test_a_lock_stops_backups_and_other_prunes_and_those_of_earlier_releases() -> None:
    store = MemoryStore()
    lock = await place(store).lock(break_lock=False)
    assert EARLIER in store.objects
    assert await refuses_all(store)
    await place(store).unlock(lock)
    assert not store.objects
    await place(store).require_no_prune()


async def test_a_late_duplicate_of_the_end_of_a_prune_does_not_unlock_a_later_one() -> None:
    store = LateDeletes()
    await prune(place(store, 1), ALL, environment(1))
    lock = await place(store, 2).lock(break_lock=False)
    await store.repeat_deletes()
    assert await refuses_all(store)
    await place(store, 2).unlock(lock)
    assert not store.objects


async def test_a_prune_of_an_earlier_release_stops_backups_and_prunes() -> None:
    store = MemoryStore()
    await store.put(EARLIER, b"{}")
    assert await refuses_all(store)


async def test_all_locks_of_killed_prunes_are_broken() -> None:
    store = MemoryStore()
    for last in (2, 3, 4):
        for lost in (False, True):
            with pytest.raises(Killed):
                await place(KillingStore(store, Countdown(last, after_effect=lost)), last).lock(break_lock=True)
    assert await refuses_all(store)
    lock = await place(store).lock(break_lock=True)
    assert await refuses_all(store)
    await place(store).unlock(lock)
    assert not store.objects


class Between(MemoryStore):
    """Lets other work happen before one request of the first process."""

    def __init__(self, at: int, work: Callable[[MemoryStore], Awaitable[None]]) -> None:
        super().__init__()
        self._left, self._work = at, work

    async def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            await self._work(self)

    async def put(self, key, data, *, mode=OVERWRITE, attributes=None):  # type: ignore[no-untyped-def]
        await self._pass()
        return await super().put(key, data, mode=mode, attributes=attributes)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        await self._pass()
        return await super().list(prefix)

    async def delete(self, key: str) -> None:
        await self._pass()
        await super().delete(key)


@pytest.mark.parametrize("at", range(1, 7))
async def test_at_most_one_of_two_prunes_that_start_at_the_same_time_goes_on(at: int) -> None:
    running: list[object] = []

    async def lock(store: MemoryStore, seed: int) -> None:
        with suppress(InvalidDbState):
            running.append(await place(store, seed).lock(break_lock=False))

    store = Between(at, lambda store: lock(store, 2))
    await lock(store, 1)
    assert len(running) <= 1
    assert len(running) == 1 or not store.objects, "both have refused, and have removed their locks"


class Unavailable(MemoryStore):
    """Lists nothing."""

    async def list(self, prefix: str) -> list[ObjectMeta]:
        raise UnavailableError("no answer")


async def test_a_lock_is_removed_if_the_others_cannot_be_listed() -> None:
    store = Unavailable()
    with pytest.raises(UnavailableError):
        await place(store).lock(break_lock=False)
    assert not store.objects


class Cancelling(Countdown):
    """Cancels the process at one request, before its effect or after it; every request waits."""

    def __init__(self, at: int | None, scope: anyio.CancelScope, *, after_effect: bool) -> None:
        super().__init__()
        self._at, self._scope, self._is_after = at, scope, after_effect

    async def send(self, effect: Callable[[], Awaitable[Any]]) -> Any:
        self.requests += 1
        is_last = self.requests == self._at
        result = await effect() if self._is_after or not is_last else None
        if is_last:
            self._scope.cancel()
        await anyio.lowlevel.checkpoint()
        return result


async def cancelled_prune(at: int | None, *, after_effect: bool) -> tuple[MemoryStore, int]:
    """Cancel a prune at one request; return what it leaves, and how many requests it sends."""
    store = MemoryStore()
    with anyio.CancelScope() as scope:
        countdown = Cancelling(at, scope, after_effect=after_effect)
        await prune(place(KillingStore(store, countdown)), ALL, environment())
    assert scope.cancelled_caught == (at is not None)
    return store, countdown.requests


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
async def test_a_prune_that_is_cancelled_at_any_request_leaves_no_lock(after_effect: bool) -> None:
    _, requests = await cancelled_prune(None, after_effect=after_effect)
    for at in range(1, requests + 1):
        store, _ = await cancelled_prune(at, after_effect=after_effect)
        assert not store.objects, at


def test_a_cancelled_prune_waits_for_its_lock_for_a_limited_time() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        faulty = FaultyStore(MemoryStore(), random.Random(1))
        with anyio.move_on_after(1) as scope:
            faulty.add(Rule(op="list", key_contains="in-progress", delay_before_s=10))
            faulty.add(Rule(op="delete", times=9, delay_before_s=1e6))
            await prune(place(faulty), ALL, environment())
        assert scope.cancelled_caught
        assert 1 < loop.time() < 60

    in_virtual_time(scenario)


@pytest.mark.parametrize("key", ["prune-locks/", "prune.lock"])
async def test_a_lock_whose_answer_is_lost_belongs_to_the_prune_that_wrote_it(key: str) -> None:
    """The store keeps no metadata, so a repeated create meets the first one."""
    store = MemoryStore(supports_attributes=False)
    faulty = FaultyStore(store, random.Random(1))
    faulty.add(Rule(fault=Fault.AFTER, op="put", key_contains=key))
    policy = RetryPolicy(first_delay_s=0)
    lock = await place(RetryingStore(faulty, environment(), policy)).lock(break_lock=False)
    assert await refuses_all(store)
    await place(store).unlock(lock)
    assert not store.objects


@pytest.mark.parametrize("key", ["prune-locks/", "prune.lock"])
async def test_a_lock_that_may_have_been_written_is_removed(key: str) -> None:
    store = MemoryStore()
    faulty = FaultyStore(store, random.Random(1))
    faulty.add(Rule(fault=Fault.AFTER, op="put", key_contains=key))
    with pytest.raises(UnavailableError):
        await place(faulty).lock(break_lock=False)
    assert not store.objects


async def test_the_end_of_a_prune_whose_lock_was_broken_leaves_the_lock_of_the_next_one() -> None:
    store = MemoryStore()
    broken = await place(store, 1).lock(break_lock=False)
    lock = await place(store, 2).lock(break_lock=True)
    await place(store, 1).unlock(broken)
    assert EARLIER in store.objects
    assert await refuses_all(store)
    await place(store, 2).unlock(lock)
    assert not store.objects
