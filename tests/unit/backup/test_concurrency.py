"""Another process does its whole work between two requests of a backup, a restore or a prune."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from shale.env import Env
from shale.errors import InvalidDbState
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.killing_store import Countdown, KillingStore, Pause

AT_ONCE = TaskOptions(min_age_s=0)
COLLECT_ALL = GcOptions(manifest=AT_ONCE, wal=AT_ONCE, compacted=AT_ONCE, compactions=AT_ONCE)
FIRST = {"a": "1", "b": "1", "wal": "1"}
LATER = {**FIRST, "a": "2", "c": "2"}


class Site:
    """A database with one backup, and rows since."""

    def __init__(self) -> None:
        self.main = MemoryStore(url="memory://main/")
        self.backups = MemoryStore(url="memory://backups/")

    @classmethod
    async def make(cls) -> "Site":
        site = cls()
        await write(site.main, {"a": "1", "b": "1"})
        await site.create()
        await write(site.main, {"wal": "1"}, flush="wal")
        return site

    def copy(self) -> "Site":
        made = Site()
        made.main.objects.update(self.main.objects)
        made.backups.objects.update(self.backups.objects)
        return made

    async def create(self, pause: Countdown | None = None) -> None:
        counted = pause if pause is not None else Countdown()
        async with admin(KillingStore(self.main, counted)) as made:
            await made.backups(store=KillingStore(self.backups, counted), path="b").create(concurrency=1)

    async def prune(self, pause: Countdown | None = None) -> None:
        counted = pause if pause is not None else Countdown()
        async with admin(self.main) as made:
            await made.backups(store=KillingStore(self.backups, counted), path="b").prune(keep=1)

    async def collect(self) -> None:
        """Write and flush, and delete all that the database does not need."""
        await write(self.main, {"a": "2", "c": "2"})
        await Collector(self.main, "db", Env.system(), COLLECT_ALL, Metrics()).run_once()

    async def prune_and_collect(self) -> None:
        await self.prune()
        await self.collect()

    async def restored(self) -> dict[str, str]:
        """Check all backups, and return the rows of the newest one."""
        other = MemoryStore()
        async with admin(self.main) as made:
            place = made.backups(store=self.backups, path="b")
            for each in await place.list():
                assert (await place.verify(each.id, deep=True)).findings == ()
            assert await place.unfinished() == ()
        async with admin(other) as target:
            await target.backups(store=self.backups, path="b").restore()
        return await rows(other)


@pytest.mark.slow
@pytest.mark.parametrize("work", [Site.prune, Site.collect, Site.prune_and_collect], ids=["prune", "gc", "both"])
def test_work_of_others_during_a_backup(work: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        first = await Site.make()
        counted = Countdown()
        await first.copy().create(counted)
        for at in range(1, counted.requests + 1):
            site = first.copy()
            await site.create(Pause(at, lambda site=site: work(site)))  # type: ignore[misc]
            assert await site.restored() in (FIRST, LATER), at
            await site.create()
            await site.prune()
            assert await site.restored() == await rows(site.main), at

    anyio.run(main)


@pytest.mark.slow
def test_a_backup_during_a_prune_is_refused_or_kept() -> None:
    async def main() -> None:
        first = await Site.make()
        counted, refused = Countdown(), []
        await first.copy().prune(counted)
        for at in range(1, counted.requests + 1):
            site = first.copy()

            async def create(site: Site = site, at: int = at) -> None:
                try:
                    await site.create()
                except InvalidDbState:
                    refused.append(at)

            await site.prune(Pause(at, create))
            await site.create()
            assert await site.restored() == FIRST, at
            await site.prune()
            assert await site.restored() == FIRST, at
        # Before the lock is written and after it is removed there is no prune.
        assert refused == list(range(2, counted.requests + 1))

    anyio.run(main)


@pytest.mark.slow
def test_a_gc_during_a_restore_deletes_nothing_of_it() -> None:
    async def main() -> None:
        site = await Site.make()
        await site.create()

        async def restore(store: MemoryStore, pause: Countdown, *, in_place: bool) -> None:
            async with admin(KillingStore(store, pause)) as made:
                await made.backups(store=KillingStore(site.backups, pause), path="b").restore(in_place=in_place)

        for in_place in (False, True):
            base = MemoryStore(url="memory://main/")
            if in_place:
                base.objects.update(site.main.objects)
                await write(base, {"wrong": "row"})
            counted = Countdown()
            await restore(copied(base), counted, in_place=in_place)
            for at in range(1, counted.requests + 1):
                store = copied(base)

                async def collect(store: MemoryStore = store) -> None:
                    if await store.list("db/manifest/"):
                        await Collector(store, "db", Env.system(), COLLECT_ALL, Metrics()).run_once()

                await restore(store, Pause(at, collect), in_place=in_place)
                await collect()
                assert await rows(store) == FIRST, (in_place, at)
                async with admin(store) as made:
                    assert (await made.verify(deep=True)).findings == ()

    anyio.run(main)


@pytest.mark.slow
def test_two_processes_make_one_backup() -> None:
    async def main() -> None:
        first = await Site.make()
        counted = Countdown()
        await first.copy().create(counted)
        for at in range(1, counted.requests + 1):
            site = first.copy()
            await site.create(Pause(at, site.create))
            assert await site.restored() == FIRST, at
            async with admin(site.main) as made:
                left = await made.checkpoints.list()
            assert all(each.expire_s for each in left), at

    anyio.run(main)
