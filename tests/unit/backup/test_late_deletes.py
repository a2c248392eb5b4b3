"""Deletions of a prune arrive a second time, after later backups: no copy of these is lost."""

from contextlib import suppress

import pytest

from shale.admin.clones import source as clone_source
from shale.backup.document import ObjectKind, seal, unseal
from shale.errors import CorruptionError, UnavailableError
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore, Pause
from tests.unit.backup.late_deletes import LateDeletes

pytestmark = pytest.mark.anyio
ROWS = {"a": "1", "b": "2"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def flushed(main: MemoryStore) -> None:
    await write(main, ROWS)


async def logged(main: MemoryStore) -> None:
    await write(main, ROWS, flush="wal")


async def projected(main: MemoryStore) -> None:
    await write(main, {**ROWS, "0": "left out"}, "parent")
    async with admin(main) as made:
        await made.clones.create(clone_source("parent", start=b"a"))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (flushed, ObjectKind.SST),
        (logged, ObjectKind.WAL),
        (flushed, ObjectKind.MANIFEST),
        (projected, ObjectKind.VISIBLE_RANGE),
    ],
    ids=lambda value: value.value if isinstance(value, ObjectKind) else "",
)
async def test_a_late_delete_of_a_prune_removes_no_copy_of_a_later_backup(make, kind) -> None:  # type: ignore[no-untyped-def]
    main, backups, other = MemoryStore(url="memory://main/"), LateDeletes(), MemoryStore()
    await make(main)
    async with admin(main) as made:
        place = made.backups(store=backups, path="b")
        await made.checkpoints.create(name="kept")
        first = await place.create(checkpoint="kept")
        await place.prune(keep=0)
        second = await place.create(checkpoint="kept")
        assert {each.name for each in first.of_kind(kind)} == {each.name for each in second.of_kind(kind)} != set()
        await backups.repeat_deletes()
        found = {each.key for each in (await place.verify(quick=True)).findings}
        assert found.isdisjoint(f"b/{each.key}" for each in second.of_kind(kind))
        assert found == set()
    async with admin(other) as target:
        await target.backups(store=backups, path="b").restore()
    assert await rows(other) == ROWS


async def create(main: ObjectStore, backups: ObjectStore) -> None:
    async with admin(main) as made:
        await made.backups(store=backups, path="b").create(concurrency=1)


async def prune(main: ObjectStore, backups: ObjectStore) -> None:
    """Remove all backups, and those in progress that began more than an hour ago."""
    async with admin(main) as made:
        with suppress(UnavailableError):
            await made.backups(store=backups, path="b").prune(keep=0, abandoned_after="1h")


async def require_sound(backups: LateDeletes, when: int) -> None:
    """Check all backups after late duplicates of all deletions."""
    await backups.repeat_deletes()
    async with admin(MemoryStore()) as made:
        place = made.backups(store=backups, path="b")
        for backup in await place.list():
            assert (await place.verify(backup.id)).findings == (), when


@pytest.mark.slow
@pytest.mark.parametrize("is_first_lost", [False, True], ids=["twice", "late only"])
async def test_a_late_delete_of_a_prune_during_a_backup_removes_no_copy_of_it(is_first_lost: bool) -> None:
    main = MemoryStore(url="memory://main/")
    await write(main, ROWS)
    await write(main, {"c": "3"}, flush="wal")

    async def site(pause: Countdown) -> LateDeletes:
        """Make a backup, and another one, during which the first is pruned."""
        source, backups = copied(main), LateDeletes()
        await create(source, backups)
        if isinstance(pause, Pause):
            pause.work = lambda: prune(source, backups)
        backups.loses_copies = is_first_lost
        await create(KillingStore(source, pause), KillingStore(backups, pause))
        return backups

    counted = Countdown()
    await site(counted)
    for at in range(1, counted.requests + 1):
        await require_sound(await site(Pause(at)), at)


async def test_copies_of_a_backup_whose_state_is_gone_are_used_unless_a_prune_deletes_them() -> None:
    main, interrupted = MemoryStore(url="memory://main/"), LateDeletes()
    await write(main, {"a": "1"})
    await write(main, {"b": "2"})
    counted = Countdown()
    await create(KillingStore(copied(main), counted), KillingStore(LateDeletes(), counted))
    countdown = Countdown(counted.requests - 6)
    with pytest.raises(Killed):
        await create(KillingStore(main, countdown), KillingStore(interrupted, countdown))
    async with admin(main) as made:
        [plan] = await made.backups(store=interrupted, path="b").unfinished()
        await made.checkpoints.delete(plan.checkpoint_id)
    await make_older(interrupted, f"b/in-progress/{plan.plan_id}/plan.json")
    done = LateDeletes()
    done.objects.update(interrupted.objects)
    counted = Countdown()
    await create(KillingStore(copied(main), counted), KillingStore(done, counted))
    ssts = {key for key, each in plan.copied.items() if each.kind is ObjectKind.SST}
    assert len(ssts) == 2
    async with admin(main) as made:
        [backup] = await made.backups(store=done, path="b").list()
        assert {each.key for each in backup.of_kind(ObjectKind.SST)} == ssts
        assert await made.backups(store=done, path="b").unfinished() == ()
    for at in range(1, counted.requests + 1):
        source, backups = copied(main), LateDeletes()
        backups.objects.update(interrupted.objects)
        backups.loses_copies = True
        pause = Pause(at, lambda source=source, backups=backups: prune(source, backups))  # type: ignore[misc]
        with suppress(CorruptionError):
            await create(KillingStore(source, pause), KillingStore(backups, pause))
        await require_sound(backups, at)


async def make_older(backups: MemoryStore, key: str) -> None:
    """Let a backup in progress have begun a day earlier."""
    found = await backups.get(key)
    assert found is not None
    fields = unseal(found.data, path=key)
    del fields["schema_version"]
    await backups.put(key, seal({**fields, "started_ms": fields["started_ms"] - 86_400_000}))
