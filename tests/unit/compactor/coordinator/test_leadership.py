"""Leadership: the epoch is claimed in both files, and released in the manifest alone."""

import pytest

from shale.errors import FencedError, LatestRecordMissing
from shale.types import CompactionStatus
from shale_compactor.coordinator.leadership import acquire_leadership, release_leadership
from shale_compactor.coordinator.live_coordinator import has_released_leadership
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import compactions, entry, manifest, spec, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def acquire(harness: Harness):
    return await acquire_leadership(harness.manifests, harness.compactions, lambda _merged: None)


async def test_the_epoch_is_claimed_in_both_files() -> None:
    harness = await Harness(manifest(tree(runs=(1,)))).create()
    state, step = await acquire(harness)
    assert state.manifest.epoch == 1
    assert (await harness.manifest()).compactor_epoch == 1
    assert (await harness.stored()).compactor_epoch == 1
    assert step.rejected == ()


async def test_inherited_jobs_are_validated() -> None:
    harness = await Harness(manifest(tree(runs=(1,)))).create()
    lost = entry(1, spec(runs=(9,), to=9), CompactionStatus.SCHEDULED)
    await harness.compactions.create_new(compactions(lost))
    _, step = await acquire(harness)
    assert [(each.entry.id, each.rule) for each in step.rejected] == [(lost.id, "V4")]
    assert (await harness.stored()).entries[0].status is CompactionStatus.FAILED


async def test_without_a_database_nothing_is_written() -> None:
    harness = Harness()
    with pytest.raises(LatestRecordMissing):
        await acquire(harness)
    assert await harness.store.list("") == []


async def test_a_release_fences_only_the_manifest() -> None:
    harness = await Harness(manifest(tree(runs=(1,)))).create()
    state, _ = await acquire(harness)
    await release_leadership(state.manifest)
    assert has_released_leadership(await harness.manifest(), await harness.stored())
    with pytest.raises(FencedError):
        await state.manifest.refresh()


async def test_a_release_after_a_takeover_is_no_error() -> None:
    harness = await Harness(manifest(tree(runs=(1,)))).create()
    first, _ = await acquire(harness)
    await acquire(harness)
    await release_leadership(first.manifest)
    assert (await harness.manifest()).compactor_epoch == 2
