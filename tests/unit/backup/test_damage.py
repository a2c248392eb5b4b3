"""Files of a place that are truncated, changed, or those of another backup: each is found, and named."""

from contextlib import suppress

import pytest

from shale.admin import clones
from shale.backup.document import Backup
from shale.errors import CorruptionError, NotFoundError
from shale.format.names import visible_range_key
from shale.store.memory import MemoryStore
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

pytestmark = pytest.mark.anyio
ROWS = {f"k{number}": f"value {number}" for number in range(20)}
EXPECTED = {key: value for key, value in ROWS.items() if key >= "k5"} | {"wal": "row"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Place:
    """The backups of a projected clone, which has all kinds of objects."""

    def __init__(self) -> None:
        self.main = MemoryStore(url="memory://main/")
        self.backups = MemoryStore(url="memory://backups/")

    async def create(self) -> Backup:
        async with admin(self.main, "half") as made:
            return await made.backups(store=self.backups, path="b").create()

    async def write(self) -> Backup:
        """Write the database, and make a backup."""
        await write(self.main, ROWS, "parent")
        async with admin(self.main, "half") as made:
            await made.clones.create(clones.source("parent", start=b"k5"))
        assert await self.main.get(visible_range_key("half")) is not None
        await write(self.main, {"wal": "row"}, "half", flush="wal")
        return await self.create()

    async def change(self, key: str, at: int) -> bytes:
        """Flip a bit of an object; return what it was."""
        found = await self.backups.get(key)
        assert found is not None
        good = bytes(found.data)
        await self.backups.put(key, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        return good


async def test_a_flipped_bit_in_any_copy_is_found_and_is_not_restored() -> None:
    place = Place()
    backup = await place.write()
    assert {each.kind.value for each in backup.objects} == {"sst", "wal", "manifest", "visible_range"}
    async with admin(place.main, "half") as made:
        at = made.backups(store=place.backups, path="b")
        for each in (found for found in backup.objects if found.size):  # a fence has no bytes
            key = f"b/{each.key}"
            for position in {0, each.size // 3, each.size // 2, each.size - 1}:
                good = await place.change(key, position)
                report = await at.verify()
                assert [finding.key for finding in report.findings] == [key]
                assert not (await at.verify(deep=True)).is_sound
                other = MemoryStore()
                async with admin(other, "half") as target:
                    with pytest.raises(CorruptionError) as caught:
                        await target.backups(store=place.backups, path="b").restore()
                    assert caught.value.path is not None
                    await place.backups.put(key, good)
                    await target.backups(store=place.backups, path="b").restore()
                assert await rows(other, "half") == EXPECTED
        assert (await at.verify(deep=True)).is_sound


async def test_a_flipped_bit_anywhere_in_a_document_is_found() -> None:
    place = Place()
    backup = await place.write()
    key = f"b/backups/{backup.id}.json"
    found = await place.backups.get(key)
    assert found is not None
    good = bytes(found.data)
    async with admin(place.main, "half") as made:
        at = made.backups(store=place.backups, path="b")
        for position in range(0, len(good), 11):
            await place.change(key, position)
            with suppress(CorruptionError):
                assert await at.list() == (backup,), f"a blank at {position}"
            await place.backups.put(key, good)
        for size in range(0, len(good) - 1, 97):
            await place.backups.put(key, good[:size])
            with pytest.raises(CorruptionError, match="remove"):
                await at.verify()


async def test_a_damaged_document_does_not_stop_the_restore_of_another_backup() -> None:
    place = Place()
    first = await place.write()
    await write(place.main, {"k9": "later"}, "half")
    second = await place.create()
    other = MemoryStore()
    await place.backups.put(f"b/backups/{second.id}.json", b"{}")
    async with admin(other, "half") as target:
        at = target.backups(store=place.backups, path="b")
        with pytest.raises(CorruptionError, match="the id of another backup"):
            await at.restore()
        assert (await at.verify(first.id)).is_sound
        await at.restore(first.id)
        with pytest.raises(CorruptionError):
            await at.restore(second.id)
    assert await rows(other, "half") == EXPECTED


async def test_the_document_of_another_backup_is_not_taken() -> None:
    place = Place()
    first = await place.write()
    await write(place.main, {"k9": "later"}, "half")
    second = await place.create()
    found = await place.backups.get(f"b/backups/{first.id}.json")
    assert found is not None
    await place.backups.put(f"b/backups/{second.id}.json", found.data)
    async with admin(place.main, "half") as made:
        at = made.backups(store=place.backups, path="b")
        for call in (at.list, at.create, at.restore):
            with pytest.raises(CorruptionError, match=f"it is the document of backup {first.id}") as caught:
                await call()
            assert caught.value.path == f"b/backups/{second.id}.json"
        with pytest.raises(NotFoundError, match="no complete backup"):
            await at.restore("01ARZ3NDEKTSV4RRFFQ69G5FAV")


async def test_a_damaged_plan_names_what_to_remove() -> None:
    place = Place()
    await place.write()
    await write(place.main, {"k9": "later", "k8": "later"}, "half")
    counted = Countdown()
    async with admin(KillingStore(place.main, counted), "half") as made:
        await made.backups(store=KillingStore(copied(place.backups), counted), path="b").create()
    with pytest.raises(Killed):
        async with admin(KillingStore(place.main, countdown := Countdown(counted.requests - 6)), "half") as made:
            await made.backups(store=KillingStore(place.backups, countdown), path="b").create()
    damaged = [meta.key for meta in await place.backups.list("b/in-progress/")]
    assert len(damaged) >= 2
    async with admin(place.main, "half") as made:
        at = made.backups(store=place.backups, path="b")
        for key in damaged:
            good = await place.change(key, 20)
            for call in (at.create, at.unfinished, lambda: at.prune(keep=1)):
                with pytest.raises(CorruptionError, match="the backup was interrupted: remove") as caught:
                    await call()
                assert caught.value.path == key
            await place.backups.put(key, good)
        for key in damaged:
            await place.backups.delete(key)
        await at.create()
        assert (await at.verify(deep=True)).is_sound
