"""A prune takes a backup that runs for an abandoned one: the backup fails, or all its copies are there.

Each test lets the prune, or another process that makes the same backup, run before one request of the backup, and
repeats that for every request.  Waits take no time: the loop is virtual.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import anyio
import pytest

from shale.backup.document import Backup, seal, unseal
from shale.backup.planner import PrunePlan
from shale.env import Env
from shale.errors import CorruptionError, InvalidDbState
from shale.store.memory import MemoryStore
from shale.types import Ulid
from tests.unit.backup.databases import NOW_MS, admin, copied, environment, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore, Pause
from tests.unit.engine.write.timing import in_virtual_time

FIRST = {"a": "1", "b": "2"}
ROWS = {**FIRST, "c": "3", "wal": "4"}
LAST_REQUESTS = 8
"""So many requests of a backup are left when it has copied all and lists the copies."""
SEEDS = count(100)


def later() -> Env:
    """Return the environment of a process that starts after all others, with ids of its own."""
    seed = next(SEEDS)
    return environment(seed, NOW_MS + seed * 1000)


class Site:
    """A database with a complete backup and newer rows."""

    def __init__(self, main: MemoryStore, backups: MemoryStore) -> None:
        self.main, self.backups = main, backups

    @classmethod
    async def make(cls) -> "Site":
        site = cls(MemoryStore(url="memory://main/"), MemoryStore(url="memory://backups/"))
        await write(site.main, FIRST, env=environment(91))
        await site.create()
        await write(site.main, {"c": "3"}, env=environment(92))
        await write(site.main, {"wal": "4"}, flush="wal", env=environment(93))
        return site

    @classmethod
    async def interrupted(cls) -> "Site":
        """Return a site with a backup that has copied everything, and was killed then."""
        site, counted = await cls.make(), Countdown()
        await site.copy().create(counted)
        with pytest.raises(Killed):
            await site.create(Countdown(counted.requests - LAST_REQUESTS))
        return site

    @classmethod
    async def interrupted_and_extended(cls) -> "Site":
        """Return such a site whose plan lacks names that the backup needs now, as a plan of an earlier release."""
        site = await cls.interrupted()
        [key] = [key for key in site.backups.objects if key.endswith("/plan.json")]
        fields = unseal(memoryview(site.backups.objects[key].data), path=key)
        del fields["schema_version"]
        site.backups.write(key, seal({**fields, "ssts": []}))
        return site

    def copy(self) -> "Site":
        return Site(copied(self.main), copied(self.backups))

    async def create(self, pause: Countdown | None = None) -> Ulid:
        counted = pause if pause is not None else Countdown()
        async with admin(KillingStore(self.main, counted), env=later()) as made:
            place = made.backups(store=KillingStore(self.backups, counted), path="b")
            return (await place.create(concurrency=1)).id

    async def prune(self, pause: Countdown | None = None, *, keep: int = 1, abandoned_after: str = "0s") -> PrunePlan:
        """Remove all backups but the newest complete one; by default also those in progress."""
        counted = pause if pause is not None else Countdown()
        async with admin(self.main, env=later()) as made:
            place = made.backups(store=KillingStore(self.backups, counted), path="b")
            return await place.prune(keep=keep, abandoned_after=abandoned_after)

    async def damaged(self) -> set[Ulid]:
        """Return the complete backups with findings."""
        async with admin(self.main, env=environment()) as made:
            place = made.backups(store=self.backups, path="b")
            return {each.id for each in await place.list() if (await place.verify(each.id)).findings}

    async def require_next_works(self) -> None:
        """Check that the next backup succeeds, leaves nothing in progress, and has all rows."""
        made = await self.create()
        assert made not in await self.damaged()
        assert not await self.backups.list("b/in-progress/")
        other = MemoryStore()
        async with admin(other, env=environment()) as target:
            await target.backups(store=self.backups, path="b").restore(made)
        assert await rows(other, env=environment()) == ROWS


async def requests_of(site: Site) -> int:
    """Return how many requests a backup sends at a site."""
    counted = Countdown()
    await site.copy().create(counted)
    return counted.requests


def with_sites(scenario: Callable[[Site], Awaitable[None]], make: Callable[[], Awaitable[Site]]) -> None:
    """Run a scenario in virtual time."""

    async def run(_: object) -> None:
        await scenario(await make())

    in_virtual_time(run)


SITES = pytest.mark.parametrize("make", [Site.make, Site.interrupted, Site.interrupted_and_extended])


@pytest.mark.slow
@SITES
@pytest.mark.parametrize("keep", [0, 1])
def test_a_prune_between_two_requests_of_a_backup(make: Callable[[], Awaitable[Site]], keep: int) -> None:
    failed: list[int] = []

    async def scenario(first: Site) -> None:
        requests = await requests_of(first)
        for at in range(1, requests + 1):
            site, deleted = first.copy(), set[str]()

            async def prune(site: Site = site, deleted: set[str] = deleted) -> None:
                deleted |= {name for name, _ in (await site.prune(keep=keep)).objects}

            try:
                made = await site.create(Pause(at, prune))
            except (InvalidDbState, CorruptionError):
                failed.append(at)
            else:
                complete = await documents(site)
                assert made in complete or keep == 0, at
                # Nor does it use a name again: the store may apply a delete a second time.
                assert all(each.key not in deleted for backup in complete.values() for each in backup.objects), at
            assert await site.damaged() == set(), at
            await site.require_next_works()
        assert 0 < len(failed) < requests

    with_sites(scenario, make)


async def documents(site: Site) -> dict[Ulid, Backup]:
    """Return the complete backups by id."""
    async with admin(site.main, env=environment()) as made:
        return {each.id: each for each in await made.backups(store=site.backups, path="b").list()}


def test_a_resumed_backup_that_a_prune_has_removed_fails_before_it_copies() -> None:
    async def scenario(first: Site) -> None:
        copied_again: list[int] = []
        for at in range(1, await requests_of(first) + 1):
            site, deleted = first.copy(), set[str]()

            async def prune(site: Site = site, deleted: set[str] = deleted) -> None:
                deleted |= {f"b/{name}" for name, _ in (await site.prune()).objects}

            with suppress(InvalidDbState, CorruptionError):
                await site.create(Pause(at, prune))
            if not deleted.isdisjoint(site.backups.objects):
                copied_again.append(at)
        # Only after the look for the plan, and before the documents and the copies are listed.
        assert len(copied_again) == 2

    with_sites(scenario, Site.interrupted)


@pytest.mark.slow
@pytest.mark.parametrize("held_s", [5, 100], ids=["shorter than the wait", "longer than the wait"])
def test_a_backup_ends_within_a_prune_that_removes_it(held_s: int) -> None:
    """The prune begins before one request of the backup, and stops before one of its own until the backup waits."""
    outcomes: set[str] = set()

    async def scenario(first: Site) -> None:
        requests, pruning = await requests_of(first), Countdown()
        await first.copy().prune(pruning)
        # Every second stop, odd and even ones in turn, which takes half the time.
        for at in range(requests - LAST_REQUESTS - 4, requests + 1):
            for stop in range(1 + at % 2, pruning.requests + 8, 2):
                outcomes.add(await together(first.copy(), at, stop))

    async def together(site: Site, at: int, stop: int) -> str:
        stopped, error = anyio.Event(), ""

        async def hold() -> None:
            stopped.set()
            await anyio.sleep(held_s)

        async def prune() -> None:
            await site.prune(Pause(stop, hold))
            stopped.set()

        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                tasks.start_soon(prune)
                await stopped.wait()

            try:
                await site.create(Pause(at, begin))
            except (InvalidDbState, CorruptionError) as found:
                error = str(found)
        damaged = await site.damaged()
        if "backup verify" in error:
            assert all(str(each) in error for each in damaged), (at, stop)
        else:
            assert damaged == set(), (at, stop)
        await site.require_next_works()
        return "unknown" if "backup verify" in error else "failed" if error else "done"

    with_sites(scenario, Site.make)
    assert outcomes == {"done", "failed"} | ({"unknown"} if held_s == 100 else set())


def test_a_prune_keeps_and_reports_a_backup_that_is_completed_while_it_removes_the_plan() -> None:
    async def scenario(first: Site) -> None:
        requests = await requests_of(first)
        kept = 0
        for stop in range(1, 20):
            site, at_document, done = first.copy(), anyio.Event(), anyio.Event()
            ids: list[Ulid] = []
            [plan] = [key for key in site.backups.objects if key.endswith("/plan.json")]

            async def complete(done: anyio.Event = done, at_document: anyio.Event = at_document) -> None:
                at_document.set()
                await done.wait()

            async def create(site: Site = site, ids: list[Ulid] = ids, complete=complete) -> None:  # type: ignore[no-untyped-def]
                with suppress(InvalidDbState, CorruptionError):
                    ids.append(await site.create(Pause(requests - LAST_REQUESTS, complete)))

            before = set(site.backups.objects)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(create)
                await at_document.wait()

                async def go_on(done: anyio.Event = done) -> None:
                    done.set()
                    await anyio.sleep(1)

                pruned = await site.prune(Pause(stop, go_on))
                done.set()
            gone = {key.removeprefix("b/") for key in before - set(site.backups.objects) if "/objects/" in key}
            assert {name for name, _ in pruned.objects} == gone, stop
            assert set(await documents(site)) == {each.id for each in pruned.kept} | set(ids), stop
            if plan.split("/")[2] in {str(each.id) for each in pruned.kept}:
                kept += 1
                assert not pruned.abandoned, stop
        assert kept

    with_sites(scenario, Site.interrupted)


@pytest.mark.slow
@SITES
def test_two_processes_that_make_one_backup_both_succeed(make: Callable[[], Awaitable[Site]]) -> None:
    async def scenario(first: Site) -> None:
        for at in range(1, await requests_of(first) + 1):
            site = first.copy()

            async def twin(site: Site = site) -> None:
                await site.create()

            await site.create(Pause(at, twin))
            assert await site.damaged() == set(), at
            await site.require_next_works()

    with_sites(scenario, make)
