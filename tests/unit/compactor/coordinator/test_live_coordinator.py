"""When a coordinator may start although the state of another exists (docs/reference/protocol.md 14.1)."""

from dataclasses import replace

import anyio
import pytest

from shale.types import WorkerClaim
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.live_coordinator import LiveCoordinator, require_no_live_coordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from tests.unit.compactor.harness import START_MS, Harness
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree

pytestmark = pytest.mark.anyio
OPTIONS = CoordinatorOptions()


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def look(harness):
    await require_no_live_coordinator(await harness.manifest(), harness.compactions, harness.env, OPTIONS)


async def beat(harness, job):
    await harness.edit(replace(job, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=harness.clock.ms)))


def compactor(harness):
    return Compactor(harness.store, "db", harness.env, CompactorOptions())


async def refused_after(harness, seconds, match):
    """Advance the clock and expect that a live coordinator is found."""
    harness.clock.advance(seconds)
    with pytest.raises(LiveCoordinator, match=match):
        await look(harness)


async def allowed_after(harness, seconds):
    """Advance the clock and expect that no live coordinator is found."""
    harness.clock.advance(seconds)
    await look(harness)


async def test_a_coordinator_seen_a_moment_ago_is_not_replaced_unasked():
    harness = await Harness(manifest(tree((1,)))).create()
    await look(harness)
    await harness.started()
    await refused_after(harness, 14, r"14\.0 s ago; --take-over")
    await allowed_after(harness, 2)


async def test_a_worker_that_is_alive_may_have_its_coordinator_beside_it():
    harness = await Harness(manifest(tree((1,)))).create()
    await harness.started()
    await beat(harness, entry(START_MS, spec((1,), to=0), S.RUNNING))
    await refused_after(harness, 20, "a worker was active")
    await allowed_after(harness, 11)


async def test_a_dead_worker_whose_clock_was_ahead_blocks_no_takeover():
    """Its last heartbeat is in the future, but no process has written since."""
    harness = await Harness(manifest(tree((1,)))).create()
    await harness.started()
    ahead = WorkerClaim(worker_id="w", last_heartbeat_ms=START_MS + 3_600_000)
    await harness.edit(entry(START_MS, spec((1,), to=0), S.RUNNING, worker=ahead))
    await refused_after(harness, 29, r"a worker was active 29\.0 s ago")
    await allowed_after(harness, 2)


async def test_workers_do_not_keep_a_dead_coordinator_alive_for_ever():
    """A result waits while another worker sends heartbeats: no coordinator is left."""
    harness = await Harness(manifest(tree((3, 2, 1)))).create()
    await harness.started()
    running = entry(START_MS, spec((1,), to=0), S.RUNNING)
    await harness.edit(running, entry(START_MS + 1, spec((3, 2), to=1), S.COMPACTED))
    for _ in range(3):
        harness.clock.advance(9)
        await beat(harness, running)
        with pytest.raises(LiveCoordinator):
            await look(harness)
    harness.clock.advance(9)
    await look(harness)


async def test_what_was_waiting_and_is_settled_now_shows_a_coordinator():
    harness = await Harness(manifest(tree((3, 2, 1)))).create()
    await harness.started()
    running, waiting = (
        entry(START_MS, spec((1,), to=0), S.RUNNING),
        entry(START_MS + 1, spec((3, 2), to=1), S.COMPACTED),
    )
    await harness.edit(running, waiting, entry(START_MS + 2, spec((3,), to=2)))
    harness.clock.advance(36)
    await harness.edit(replace(waiting, status=S.FAILED))
    await beat(harness, running)
    with pytest.raises(LiveCoordinator):
        await look(harness)


async def test_after_a_clean_stop_the_next_one_starts_at_once():
    """Busy workers do not delay it, and it does not wait for three polls."""
    harness = await Harness(manifest(tree((4, 3, 2, 1)))).create()
    first = compactor(harness)
    await first.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await harness.edit(*(replace(job, status=S.RUNNING) for job in (await harness.stored()).entries))
    stored = (await harness.stored()).entries
    await beat(harness, stored[0])
    second = compactor(harness)
    await second.start()
    assert (await harness.manifest()).compactor_epoch == (await harness.stored()).compactor_epoch == 3
    assert S.RUNNING in statuses(await harness.stored()).values()


async def test_a_replaced_leader_does_not_release_leadership():
    harness = await Harness(manifest(tree((1,)))).create()
    old = await harness.started()
    await harness.started()
    await old.release_leadership()
    assert (await harness.manifest()).compactor_epoch == 2


async def test_a_database_marked_as_destroyed_is_not_written_to_on_the_way_out():
    harness = await Harness(manifest(tree((1,)))).create()
    first = compactor(harness)
    await first.start()
    before = len(await harness.manifests.list_versions())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await anyio.wait_all_tasks_blocked()
        await harness.store.put("db/.destroyed", b"{}")
        tasks.cancel_scope.cancel()
    assert len(await harness.manifests.list_versions()) == before
