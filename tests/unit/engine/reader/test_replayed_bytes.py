"""The memory of the rows that a reader has replayed from the WAL stays within its limit."""

import shale
from tests.unit.engine.reader.database import Database, rows_in_wal
from tests.unit.protocol.conftest import run


def test_replay_stops_at_its_limit_and_goes_on_when_rows_are_in_l0() -> None:
    """The reader then serves an older state instead of taking all the memory that the WAL needs."""

    async def main() -> None:
        database = Database()
        async with shale.Db.open("db", store=database.store, env=database.env) as db:
            for number in range(20):
                await db.put(b"%02d" % number, b"v" * 5000)
                await db.flush("wal")
            follower = await database.opened(max_memtable_bytes=4096, max_replayed_bytes=30_000)
            assert rows_in_wal(follower) == [b"%02d" % number for number in range(6)]
            await follower.poll()
            assert len(rows_in_wal(follower)) == 6
            await db.flush("memtable")
            await db.put(b"20", b"v")
            await db.flush("wal")
            await follower.poll()
            assert rows_in_wal(follower) == [b"20"]

    run(main)


def test_rows_that_only_an_older_state_shows_count_until_it_is_closed() -> None:
    async def main() -> None:
        database = Database()
        async with shale.Db.open("db", store=database.store, env=database.env) as db:

            async def write(first: int) -> None:
                for number in range(first, first + 5):
                    await db.put(b"%02d" % number, b"v" * 5000)
                    await db.flush("wal")

            await write(0)
            follower = await database.opened(max_memtable_bytes=4096, max_replayed_bytes=40_000)
            older = follower.state
            await db.flush("memtable")
            await write(10)
            await follower.poll()
            assert rows_in_wal(follower) == [b"%02d" % number for number in range(10, 15)]
            await db.flush("memtable")
            await write(20)
            await follower.poll()  # the rows of ``older`` leave room for three more
            assert rows_in_wal(follower) == [b"20", b"21", b"22"]
            assert follower.replayed_bytes == older.tables.size_bytes + follower.state.tables.size_bytes
            del older
            await follower.poll()
            assert rows_in_wal(follower) == [b"20", b"21", b"22", b"23", b"24"]
            assert follower.replayed_bytes == follower.state.tables.size_bytes

    run(main)
