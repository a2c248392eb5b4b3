"""Backups of earlier releases, whose copies have names without the id of a backup."""

import pytest

from shale.backup.document import ObjectKind
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.earlier_names import earlier_name, use_earlier_names
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore, Pause

pytestmark = pytest.mark.anyio
ROWS = {"a": "1", "b": "2", "wal": "3"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def database() -> MemoryStore:
    """Return a store with a database of two L0s and a WAL file."""
    main = MemoryStore(url="memory://main/")
    await write(main, {"a": "1"})
    await write(main, {"b": "2"})
    await write(main, {"wal": "3"}, flush="wal")
    return main


async def restored(backups: MemoryStore) -> dict[str, str]:
    """Return the rows of the newest backup."""
    other = MemoryStore()
    async with admin(other) as target:
        await target.backups(store=backups, path="b").restore()
    return await rows(other)


async def test_copies_of_an_earlier_release_are_read_and_used_again() -> None:
    main, backups = await database(), MemoryStore(url="memory://backups/")
    async with admin(main) as made:
        place = made.backups(store=backups, path="b")
        await made.checkpoints.create(name="kept")
        await place.create(checkpoint="kept")
        await use_earlier_names(backups, "b")
        [first] = await place.list()
        assert {each.key for each in first.objects} == {earlier_name(each.key) for each in first.objects}
        assert (await place.verify(deep=True)).is_sound
        assert await restored(backups) == ROWS
        second = await place.create(checkpoint="kept")
        assert {each.key for each in second.objects} == {each.key for each in first.objects}
        assert second.copied_objects == 0
        await write(main, {"c": "4"})
        third = await place.create()
        assert {each.key for each in first.of_kind(ObjectKind.SST)} < {each.key for each in third.objects}
        await place.prune(keep=1)
        assert (await place.verify(deep=True)).is_sound
    assert await restored(backups) == {**ROWS, "c": "4"}
    left = {meta.key.removeprefix("b/") for meta in await backups.list("b/objects/")}
    assert left == {each.key for each in third.objects}


async def create(main: ObjectStore, backups: ObjectStore) -> None:
    async with admin(main) as made:
        await made.backups(store=backups, path="b").create(concurrency=1)


@pytest.mark.slow
async def test_an_interrupted_backup_of_an_earlier_release_is_continued_beside_a_prune() -> None:
    first, counted = await database(), Countdown()
    await create(KillingStore(copied(first), counted), KillingStore(MemoryStore(url="memory://backups/"), counted))
    for last in range(1, counted.requests):
        main, backups = copied(first), MemoryStore(url="memory://backups/")
        countdown = Countdown(last, after_effect=True)
        with pytest.raises(Killed):
            await create(KillingStore(main, countdown), KillingStore(backups, countdown))
        await use_earlier_names(backups, "b")
        async with admin(main) as made:
            place = made.backups(store=backups, path="b")
            if await place.list():
                break
            before = await place.unfinished()

            async def prune(backups: MemoryStore = backups, main: MemoryStore = main) -> None:
                async with admin(main) as other:
                    await other.backups(store=backups, path="b").prune(keep=1)

            sizes = Countdown()
            await create(KillingStore(copied(main), sizes), KillingStore(copied(backups), sizes))
            at = last % sizes.requests + 1
            pause = Pause(at, prune)
            await create(KillingStore(main, pause), KillingStore(backups, pause))
            [done] = await place.list()
            assert not before or done.id == before[0].plan_id
            journaled = {key for each in before for key in each.copied}
            assert journaled <= {each.key for each in done.objects}
            assert (await place.verify(deep=True)).is_sound
            assert await place.unfinished() == ()
