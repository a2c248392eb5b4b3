"""When a coordinator may start beside the traces of another (docs/protocol.md 14.1)."""

from dataclasses import replace

import anyio
import pytest

from shale.types import WorkerClaim
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.takeover import LiveCoordinator, require_no_live_coordinator
from shale_compactor.process import Compactor, CompactorOptions
from tests.unit.compactor.house import START_MS, House
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree

pytestmark = pytest.mark.anyio
OPTIONS = CoordinatorOptions()


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def look(house):
    await require_no_live_coordinator(await house.manifest(), house.compactions, house.env, OPTIONS)


async def beat(house, job):
    await house.edit(replace(job, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=house.clock.ms)))


def compactor(house):
    return Compactor(house.store, "db", house.env, CompactorOptions())


async def test_a_coordinator_seen_a_moment_ago_is_not_replaced_unasked():
    house = await House(manifest(tree((1,)))).create()
    await look(house)
    await house.started()
    house.clock.advance(14)
    with pytest.raises(LiveCoordinator, match=r"14\.0 s ago; --take-over"):
        await look(house)
    house.clock.advance(2)
    await look(house)


async def test_a_worker_that_is_alive_may_have_its_coordinator_beside_it():
    house = await House(manifest(tree((1,)))).create()
    await house.started()
    await beat(house, entry(START_MS, spec((1,), to=0), S.RUNNING))
    house.clock.advance(20)
    with pytest.raises(LiveCoordinator, match="a worker was active"):
        await look(house)
    house.clock.advance(11)
    await look(house)


async def test_a_dead_worker_whose_clock_was_ahead_keeps_nobody_out():
    """Its last heartbeat stands in the future, but nobody has written since."""
    house = await House(manifest(tree((1,)))).create()
    await house.started()
    ahead = WorkerClaim(worker_id="w", last_heartbeat_ms=START_MS + 3_600_000)
    await house.edit(entry(START_MS, spec((1,), to=0), S.RUNNING, worker=ahead))
    house.clock.advance(29)
    with pytest.raises(LiveCoordinator, match=r"a worker was active 29\.0 s ago"):
        await look(house)
    house.clock.advance(2)
    await look(house)


async def test_workers_do_not_keep_a_dead_coordinator_alive_for_ever():
    """A result waits while another worker goes on with its heartbeats: nobody coordinates any more."""
    house = await House(manifest(tree((3, 2, 1)))).create()
    await house.started()
    running = entry(START_MS, spec((1,), to=0), S.RUNNING)
    await house.edit(running, entry(START_MS + 1, spec((3, 2), to=1), S.COMPACTED))
    for _ in range(3):
        house.clock.advance(9)
        await beat(house, running)
        with pytest.raises(LiveCoordinator):
            await look(house)
    house.clock.advance(9)
    await look(house)


async def test_what_was_waiting_and_is_settled_now_shows_a_coordinator():
    house = await House(manifest(tree((3, 2, 1)))).create()
    await house.started()
    running, waiting = (
        entry(START_MS, spec((1,), to=0), S.RUNNING),
        entry(START_MS + 1, spec((3, 2), to=1), S.COMPACTED),
    )
    await house.edit(running, waiting, entry(START_MS + 2, spec((3,), to=2)))
    house.clock.advance(36)
    await house.edit(replace(waiting, status=S.FAILED))
    await beat(house, running)
    with pytest.raises(LiveCoordinator):
        await look(house)


async def test_after_a_clean_stop_the_next_one_starts_at_once():
    """Also while workers go on; it had been waiting for three polls, and with busy workers for ever."""
    house = await House(manifest(tree((4, 3, 2, 1)))).create()
    first = compactor(house)
    await first.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await house.edit(*(replace(job, status=S.RUNNING) for job in (await house.stored()).entries))
    stored = (await house.stored()).entries
    await beat(house, stored[0])
    second = compactor(house)
    await second.start()
    assert (await house.manifest()).compactor_epoch == (await house.stored()).compactor_epoch == 3
    assert S.RUNNING in statuses(await house.stored()).values()


async def test_nobody_resigns_from_an_office_that_is_taken():
    house = await House(manifest(tree((1,)))).create()
    old = await house.started()
    await house.started()
    await old.resign()
    assert (await house.manifest()).compactor_epoch == 2


async def test_a_database_marked_as_destroyed_is_not_written_to_on_the_way_out():
    house = await House(manifest(tree((1,)))).create()
    first = compactor(house)
    await first.start()
    before = len(await house.manifests.list_versions())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await anyio.wait_all_tasks_blocked()
        await house.store.put("db/.destroyed", b"{}")
        tasks.cancel_scope.cancel()
    assert len(await house.manifests.list_versions()) == before
