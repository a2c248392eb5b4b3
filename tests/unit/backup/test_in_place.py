"""Restores in place of clones, and after an interrupted restore of another backup."""

import pytest

from shale.admin import clones
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

pytestmark = pytest.mark.anyio
AT_ONCE = TaskOptions(min_age_s=0)
COLLECT_ALL = GcOptions(manifest=AT_ONCE, wal=AT_ONCE, compacted=AT_ONCE, compactions=AT_ONCE)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def collect(store: MemoryStore, path: str) -> None:
    await Collector(store, path, Env.system(), COLLECT_ALL, Metrics()).run_once()


async def test_the_parent_of_a_clone_is_released_once_the_state_before_is_not_kept() -> None:
    store, backups = MemoryStore(url="memory://main/"), MemoryStore(url="memory://backups/")
    await write(store, {"a": "parent"}, "parent")
    async with admin(store, "clone") as made:
        await made.clones.create("parent")
        await write(store, {"b": "own"}, "clone")
        place = made.backups(store=backups, path="b")
        await place.create()
        await write(store, {"a": "wrong"}, "clone")
        result = await place.restore(in_place=True)
        assert await rows(store, "clone") == {"a": "parent", "b": "own"}
        assert result.undo_checkpoint is not None
        async with admin(store, "parent") as parent:
            await collect(store, "clone")
            held = [each for each in await parent.checkpoints.list() if not each.expire_s]
            assert len(held) == 1, "the state before reads its SSTs"
            assert (await made.verify(deep=True)).findings == ()
            async with admin(store, "undone") as undone:
                await undone.clones.create(clones.source("clone", checkpoint=result.undo_checkpoint))
            assert await rows(store, "undone") == {"a": "wrong", "b": "own"}
            async with admin(store, "undone") as undone:
                await undone.destroy(confirm=True, force=True)
            for each in await made.checkpoints.list():
                await made.checkpoints.delete(each.id)
            for _ in range(2):
                await collect(store, "clone")
            assert [each for each in await parent.checkpoints.list() if not each.expire_s] == []
        assert await rows(store, "clone") == {"a": "parent", "b": "own"}
        assert (await made.verify(deep=True)).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True], ids=["empty path", "over a database"])
async def test_another_backup_is_restored_over_a_half_built_database(is_replaced: bool) -> None:
    source, backups = MemoryStore(url="memory://main/"), MemoryStore(url="memory://backups/")
    await write(source, {"a": "1"})
    async with admin(source) as made:
        await made.backups(store=backups, path="b").create()
        await write(source, {"b": "2"})
        await made.backups(store=backups, path="b").create()
        first, second = await made.backups(store=backups, path="b").list()
    base = MemoryStore(url="memory://main/")
    if is_replaced:
        base.objects.update(source.objects)
        await write(base, {"wrong": "row"})

    async def restore(store: MemoryStore, backup_id: object, countdown: Countdown) -> object:
        async with admin(KillingStore(store, countdown)) as made:
            place = made.backups(store=KillingStore(backups, countdown), path="b")
            return await place.restore(str(backup_id), in_place=True)

    probe, counted = MemoryStore(url="memory://main/"), Countdown()
    probe.objects.update(base.objects)
    await restore(probe, second.id, counted)
    for last in range(1, counted.requests + 1, 2):
        store = MemoryStore(url="memory://main/")
        store.objects.update(base.objects)
        with pytest.raises(Killed):
            await restore(store, second.id, Countdown(last, after_effect=True))
        result = await restore(store, first.id, Countdown())
        assert await rows(store) == {"a": "1"}, last
        async with admin(store) as made:
            assert (await made.verify(deep=True)).findings == (), last
            undo = getattr(result, "undo_checkpoint", None)
            if is_replaced:
                async with admin(store, "undone") as undone:
                    await undone.clones.create(clones.source("db", checkpoint=undo))
                wanted = {"a": "1", "b": "2"} | {"wrong": "row"}
                assert await rows(store, "undone") in (wanted, {"a": "1", "b": "2"}), last
