"""WAL files that the manifest does not know: a backup takes all of them, and none is lost without an error."""

from itertools import pairwise

import pytest

import shale
from shale.env import Env
from shale.errors import WalTruncated
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

pytestmark = pytest.mark.anyio
ROWS = {f"k{number}": f"value {number}" for number in range(6)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def crashed(**options: int) -> MemoryStore:
    """Return a database whose writer was killed: its manifest knows no file with rows."""
    store = MemoryStore(url="memory://main/")
    db = await shale.Db.open("db", store=store, **options)  # type: ignore[arg-type]
    for key, value in ROWS.items():
        await (await db.put(key.encode(), value.encode())).durable()
    state = dict(store.objects)
    await db.close()
    store.objects.clear()
    store.objects.update(state)
    return store


def wal_key(wal_id: int) -> str:
    return f"db/wal/{wal_id:020}.sst"


@pytest.mark.parametrize("lost_id", [2, 4, 5])
async def test_a_backup_refuses_a_wal_without_a_file_in_the_middle(lost_id: int) -> None:
    main, backups = await crashed(), MemoryStore(url="memory://backups/")
    assert {wal_key(lost_id), wal_key(lost_id + 1)} <= main.objects.keys()
    await main.delete(wal_key(lost_id))
    async with admin(main) as made:
        place = made.backups(store=backups, path="b")
        with pytest.raises(WalTruncated, match=wal_key(lost_id)):
            await place.create()
        assert await place.list() == ()


async def test_a_file_that_is_missing_in_a_parallel_wal_may_never_have_been_written() -> None:
    main, backups = await crashed(max_parallel_writes=3), MemoryStore(url="memory://backups/")
    last_id = sum(key.startswith("db/wal/") for key in main.objects)
    await main.delete(wal_key(last_id - 1))
    async with admin(main) as made:
        await made.backups(store=backups, path="b").create()
    other = MemoryStore()
    async with admin(other) as target:
        await target.backups(store=backups, path="b").restore()
    assert await rows(other) == dict(list(ROWS.items())[:-2])


async def test_a_resumed_backup_takes_files_that_were_collected_meanwhile_for_no_loss() -> None:
    main, backups = await crashed(), MemoryStore(url="memory://backups/")
    async with admin(main) as made:
        killed = made.backups(store=KillingStore(backups, Countdown(6)), path="b")
        with pytest.raises(Killed):
            await killed.create()
        assert len(await made.backups(store=backups, path="b").unfinished()) == 1
    await write(main, {"later": "flushed"})
    await write(main, {"last": "in the WAL"}, flush="wal")
    at_once = TaskOptions(min_age_s=0)
    await Collector(main, "db", Env.system(), GcOptions(wal=at_once), Metrics()).run_once()
    ids = sorted(int(key[len("db/wal/") :][:20]) for key in main.objects if key.startswith("db/wal/"))
    assert any(right > left + 1 for left, right in pairwise(ids))
    async with admin(main) as made:
        place = made.backups(store=backups, path="b")
        await place.create()
        assert (await place.verify(deep=True)).is_sound
        assert await place.unfinished() == ()
