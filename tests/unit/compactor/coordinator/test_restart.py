"""A coordinator dies before or after every single request, and its successor continues (docs/reference/protocol.md 6.4,
6.10).

F4.1 plays this with real workers and rows; here every point is visited, and progress must survive all of them.
"""

import itertools

import pytest

from shale.errors import UnavailableError
from shale.store.memory import MemoryStore
from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction
from tests.unit.compactor.harness import START_MS, Harness
from tests.unit.compactor.values import S, entry, manifest, spec, sst, tree

pytestmark = pytest.mark.anyio
PROGRESS = CompactionContext(
    subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=(sst(START_MS + 1),)),), retention_min_seq=Seq(3)
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Mortal(MemoryStore):
    """A store that fails after a number of requests: one before or after its effect, all later ones before."""

    def __init__(self, clock):
        super().__init__(clock)
        self.left: float = float("inf")
        self.acts_last = False

    async def get(self, key):
        self._spend()
        return await super().get(key)

    async def get_if_changed(self, key, etag):
        self._spend()
        return await super().get_if_changed(key, etag)

    async def list(self, prefix):
        self._spend()
        return await super().list(prefix)

    async def put(self, key, data, **options):
        if self.acts_last and 0 < self.left <= 1:
            await super().put(key, data, **options)
        self._spend()
        return await super().put(key, data, **options)

    def _spend(self):
        self.left -= 1
        if self.left < 0 or (self.left == 0 and self.acts_last):
            raise UnavailableError("the process is dead")


async def dies(harness, life, left, *, acts_last):
    """Run until the request fails; return whether that was before the end."""
    harness.store.left, harness.store.acts_last = left, acts_last
    try:
        await life()
    except UnavailableError:
        return True
    finally:
        harness.store.left = float("inf")
    return False


@pytest.mark.parametrize("acts_last", [False, True])
async def test_progress_survives_a_death_at_any_point_of_a_start(acts_last):
    """The job was released with its progress; a conflicting job that breaks V7 makes the start write a version."""
    for left in itertools.count(1):
        harness = await Harness(manifest(tree((3, 2, 1))), store=Mortal).create()
        await harness.started()
        job = entry(START_MS, spec((3, 2, 1), to=0), S.SCHEDULED, ctx=PROGRESS)
        await harness.edit(job, entry(START_MS + 1, spec((3, 2), to=7), S.SCHEDULED))
        died = await dies(harness, harness.started, left, acts_last=acts_last)
        await (await harness.started()).run_round()
        assert [(found.status, found.ctx) for found in (await harness.stored()).entries] == [
            (S.SCHEDULED, PROGRESS),
            (S.FAILED, None),
        ]
        if not died:
            assert left > 6, "it has lived through a whole start"
            return


@pytest.mark.parametrize("acts_last", [False, True])
async def test_a_result_is_committed_once_whenever_the_coordinator_dies(acts_last):
    for left in itertools.count(1):
        harness = await Harness(manifest(tree((4, 3, 2, 1))), store=Mortal).create()
        coordinator = await harness.started()
        await coordinator.run_round()
        await harness.claim_and_finish()
        died = await dies(harness, coordinator.run_round, left, acts_last=acts_last)
        await (await harness.started()).run_round()
        (done,) = (await harness.stored()).entries
        assert done.status is S.COMPLETED
        latest = await harness.manifest()
        assert latest.tree.l0 == ()
        assert [[view.sst for view in run.ssts] for run in latest.tree.compacted] == [list(done.output_ssts)]
        shown = [
            (await harness.manifests.read(version.id)).tree.compacted
            for version in await harness.manifests.list_versions()
        ]
        assert len({tuple(run.id for run in runs) for runs in shown}) == 2, "without the run, and with it"
        if not died:
            assert left > 10, "it has lived through a whole commit"
            return
