"""A process that ends at any request, before its effect or after it: the next call completes the work."""

import anyio
import pytest

from shale.backup.document import ObjectKind
from shale.store.memory import MemoryStore
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

ROWS = {f"k{number}": f"value {number}" for number in range(9)}


async def database() -> MemoryStore:
    """Return a store with a database of three L0s and a WAL."""
    store = MemoryStore(url="memory://main/")
    for start in range(0, 9, 3):
        await write(store, dict(list(ROWS.items())[start : start + 3]))
    await write(store, {"wal": "row"}, flush="wal")
    return store


async def create(store: MemoryStore, backups: MemoryStore, countdown: Countdown) -> None:
    async with admin(KillingStore(store, countdown)) as made:
        await made.backups(store=KillingStore(backups, countdown), path="b").create(concurrency=2)


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_a_backup_that_is_killed_at_any_request_is_invisible_and_continues(after_effect: bool) -> None:
    async def main() -> None:
        first = await database()
        counted = Countdown()
        await create(copied(first), MemoryStore(url="memory://backups/"), counted)
        for last in range(1, counted.requests + 1):
            store, backups = copied(first), MemoryStore(url="memory://backups/")
            with pytest.raises(Killed):
                await create(store, backups, Countdown(last, after_effect=after_effect))
            async with admin(store) as made:
                place = made.backups(store=backups, path="b")
                before = await place.list()
                assert not before or (await place.verify()).is_sound
                await place.create()
                assert len(await place.list()) == len(before) + 1
                assert await place.unfinished() == ()
                # Only one that no plan names yet stays, until it expires.
                left = await made.checkpoints.list()
                assert len(left) <= 1
                assert all(each.expire_s for each in left)
                assert (await place.verify()).is_sound
                if last % 4:
                    continue
                other = MemoryStore()
                async with admin(other) as target:
                    await target.backups(store=backups, path="b").restore()
                assert await rows(other) == {**ROWS, "wal": "row"}

    anyio.run(main)


def test_a_resumed_backup_copies_nothing_twice() -> None:
    async def main() -> None:
        first = await database()
        counted, resumed = Countdown(), Countdown()
        await create(copied(first), MemoryStore(url="memory://backups/"), counted)
        backups = MemoryStore(url="memory://backups/")
        with pytest.raises(Killed):
            await create(first, backups, Countdown(counted.requests - 6))
        async with admin(first) as made:
            [plan] = await made.backups(store=backups, path="b").unfinished()
            assert sum(each.kind is ObjectKind.SST for each in plan.copied.values()) == 3
        listed = {meta.key: meta.etag for meta in await backups.list("b/objects/")}
        assert all(str(plan.plan_id) in key for key in listed)
        await create(first, backups, resumed)
        assert {meta.key: meta.etag for meta in await backups.list("b/objects/")} == listed

    anyio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True], ids=["empty path", "in place"])
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_a_restore_that_is_killed_at_any_request_is_not_readable_and_continues(
    after_effect: bool, in_place: bool
) -> None:
    async def restore(store: MemoryStore, backups: MemoryStore, countdown: Countdown) -> None:
        async with admin(KillingStore(store, countdown)) as made:
            place = made.backups(store=KillingStore(backups, countdown), path="b")
            await place.restore(in_place=in_place, concurrency=2)

    async def main() -> None:
        backups, target = MemoryStore(url="memory://backups/"), MemoryStore(url="memory://main/")
        source = await database()
        await create(source, backups, Countdown())
        expected = {**ROWS, "wal": "row"}
        wrong = {"k1": "wrong", "wrong": "row"}
        if in_place:
            target = source
            await write(target, wrong)
        counted = Countdown()
        await restore(copied(target), backups, counted)
        for last in range(1, counted.requests + 1):
            store = copied(target)
            with pytest.raises(Killed):
                await restore(store, backups, Countdown(last, after_effect=after_effect))
            await restore(store, backups, Countdown())
            assert await rows(store) == expected
            async with admin(store) as made:
                assert (await made.verify()).findings == ()

    anyio.run(main)


def test_a_prune_that_is_killed_at_any_request_harms_no_other_backup() -> None:
    async def main() -> None:
        store, backups = await database(), MemoryStore(url="memory://backups/")
        await create(store, backups, Countdown())
        await write(store, {"k1": "new"})
        await create(store, backups, Countdown())

        async def prune(countdown: Countdown, on: MemoryStore, *, break_lock: bool = False) -> None:
            async with admin(store) as made:
                place = made.backups(store=KillingStore(on, countdown), path="b")
                await place.prune(keep=1, break_lock=break_lock)

        counted = Countdown()
        await prune(counted, pruned := copied(backups))
        for last in range(1, counted.requests + 1):
            interrupted = copied(backups)
            with pytest.raises(Killed):
                await prune(Countdown(last), interrupted)
            async with admin(store) as made:
                assert (await made.backups(store=interrupted, path="b").verify()).is_sound
            await prune(Countdown(), interrupted, break_lock=True)
            assert [meta.key for meta in await interrupted.list("b/")] == [meta.key for meta in await pruned.list("b/")]

    anyio.run(main)
