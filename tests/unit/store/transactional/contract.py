"""The contract of transactional stores: one suite for every driver."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from shale.store.transactional.port import SCHEMA_VERSION, CommitRecord, Slot, TransactionalStore

DIRECTORY = "db/manifest"


def record(id_: int, put_id: str = "a", **fields: bool) -> CommitRecord:
    """Return a record of one manifest version."""
    destination = f"{DIRECTORY}/{id_:020}.manifest"
    return CommitRecord(
        destination=destination,
        source=f"{destination}.{put_id}",
        put_id=put_id,
        checksum="00" * 32,
        size=3,
        created_at_ms=1_700_000_000_123,
        **fields,
    )


def slot(id_: int) -> Slot:
    return Slot(DIRECTORY, id_)


class TransactionalStoreContract:
    """The suite.  Subclasses provide the fixture ``store``, with its schema created."""

    async def test_the_schema_has_a_version_and_can_be_created_twice(self, store: TransactionalStore) -> None:
        await store.create_schema()
        assert await store.schema_version() == SCHEMA_VERSION

    async def test_a_record_comes_back_as_it_was_inserted(self, store: TransactionalStore) -> None:
        assert await store.insert(record(7), slot(7)) == record(7)
        assert await store.get(record(7).destination) == record(7)
        assert await store.get(record(8).destination) is None

    async def test_a_second_insert_gets_the_first_record(self, store: TransactionalStore) -> None:
        await store.insert(record(7, "a"), slot(7))
        assert await store.insert(record(7, "b"), slot(7)) == record(7, "a")
        assert await store.insert(record(7, "a"), slot(7)) == record(7, "a")

    async def test_one_of_many_concurrent_inserts_wins(self, store: TransactionalStore) -> None:
        found: list[CommitRecord | None] = []

        async def insert(number: int) -> None:
            found.append(await store.insert(record(7, f"put-{number}"), slot(7)))

        await _all([lambda number=number: insert(number) for number in range(8)])  # type: ignore[misc]
        assert len(found) == 8
        assert len(set(found)) == 1

    async def test_nothing_is_inserted_at_or_below_the_mark(self, store: TransactionalStore) -> None:
        assert await store.raise_low_water_mark(DIRECTORY, 7) == 7
        assert await store.insert(record(7), slot(7)) is None
        assert await store.get(record(7).destination) is None
        assert await store.insert(record(8), slot(8)) == record(8)

    async def test_what_is_missing_after_the_mark_was_raised_stays_missing(self, store: TransactionalStore) -> None:
        missing: list[str] = []

        async def insert(put_id: str) -> None:
            for id_ in range(1, 31):
                await store.insert(record(id_, put_id), slot(id_))

        async def collect() -> None:
            for id_ in range(2, 31, 2):
                await store.raise_low_water_mark(DIRECTORY, id_)
                if await store.get(record(id_).destination) is None:
                    missing.append(record(id_).destination)

        await _all([collect, lambda: insert("a"), lambda: insert("b")])
        assert [destination for destination in missing if await store.get(destination) is not None] == []

    async def test_a_record_at_the_mark_is_found_by_its_own_put(self, store: TransactionalStore) -> None:
        await store.insert(record(7), slot(7))
        await store.raise_low_water_mark(DIRECTORY, 9)
        assert await store.insert(record(7), slot(7)) == record(7)

    async def test_a_record_without_a_slot_ignores_marks(self, store: TransactionalStore) -> None:
        marker = replace(record(1), destination="db/.destroyed")
        await store.raise_low_water_mark("db", 7)
        assert await store.insert(marker, None) == marker

    async def test_marks_never_fall(self, store: TransactionalStore) -> None:
        assert await store.low_water_mark(DIRECTORY) == 0
        assert await store.raise_low_water_mark(DIRECTORY, 7) == 7
        assert await store.raise_low_water_mark(DIRECTORY, 5) == 7
        assert await store.low_water_mark(DIRECTORY) == 7

    async def test_marks_are_listed_by_prefix(self, store: TransactionalStore) -> None:
        await store.raise_low_water_mark("db/wal", 3)
        await store.raise_low_water_mark("dc/wal", 4)
        await store.insert(record(9), slot(9))  # whose mark is still 0
        assert await store.low_water_marks("db/") == {"db/wal": 3}

    async def test_only_the_same_put_is_set_committed(self, store: TransactionalStore) -> None:
        await store.insert(record(7, "a"), slot(7))
        await store.set_committed(record(7, "b"))
        assert await store.get(record(7).destination) == record(7, "a")
        await store.set_committed(record(7, "a"))
        assert await store.get(record(7).destination) == record(7, "a", is_committed=True)

    async def test_tombstones_are_removed_and_other_records_stay(self, store: TransactionalStore) -> None:
        for id_ in (1, 2, 3):
            await store.insert(record(id_), slot(id_))
        destinations = [record(id_).destination for id_ in (1, 2, 9)]
        await store.set_deleted(destinations[:1])
        await store.remove_deleted(destinations)
        assert [found.destination for found in await store.records("db/")] == [
            record(2).destination,
            record(3).destination,
        ]

    async def test_unfinished_are_the_uncommitted_and_the_tombstones(self, store: TransactionalStore) -> None:
        for id_ in (1, 2, 3, 4):
            await store.insert(record(id_), slot(id_))
        for id_ in (1, 2, 3):
            await store.set_committed(record(id_))
        await store.set_deleted([record(2).destination])
        assert [found.destination for found in await store.unfinished("db/")] == [
            record(2).destination,
            record(4).destination,
        ]
        assert await store.unfinished("other/") == []

    async def test_records_are_in_order_of_keys(self, store: TransactionalStore) -> None:
        names = ["db/wal/b", "db/wal/a", "db/wal/ä", "db/wal/A", "db/wal/😀", "dc/wal/a"]
        for name in names:
            await store.insert(replace(record(1), destination=name), None)
        assert [found.destination for found in await store.records("db/")] == sorted(names[:-1])

    async def test_imported_records_leave_others_alone(self, store: TransactionalStore) -> None:
        await store.insert(record(1, "own"), slot(1))
        await store.import_committed([record(1, "x", is_committed=True), record(2, "x", is_committed=True)])
        assert await store.records("db/") == [record(1, "own"), record(2, "x", is_committed=True)]

    async def test_all_of_a_database_is_removed(self, store: TransactionalStore) -> None:
        await store.insert(record(1), slot(1))
        await store.raise_low_water_mark("db/wal", 3)
        await store.raise_low_water_mark("dc/wal", 4)
        await store.remove_all("db/")
        assert await store.records("") == []
        assert await store.low_water_marks("") == {"dc/wal": 4}

    async def test_directories_are_removed_together_and_others_stay(self, store: TransactionalStore) -> None:
        nested = replace(record(1), destination="db/eu/manifest/1")
        for each in (record(1), nested):
            await store.insert(each, None)
        for directory in (DIRECTORY, "db/wal", "db/eu/manifest"):
            await store.raise_low_water_mark(directory, 3)
        assert await store.low_water_marks(f"{DIRECTORY}/") == {DIRECTORY: 3}
        await store.remove_all(f"{DIRECTORY}/", "db/wal/")
        assert await store.records("db/") == [nested]
        assert await store.low_water_marks("db/") == {"db/eu/manifest": 3}


async def _all(calls: list[Callable[[], Awaitable[None]]]) -> None:
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call)
