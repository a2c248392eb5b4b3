"""Leadership: the epoch is claimed in both files, and released in the manifest alone."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from shale.errors import FencedError, LatestRecordMissing
from shale.store.memory import MemoryStore
from shale.types import Checkpoint, CompactionStatus, Epoch
from shale.types.writer_sign import EmbeddedCompactor, WriterIdentity, embedded_compactor
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


class _StoreOfDeaths(MemoryStore):
    """A store whose clients die when they write the compactions, until they are spared."""

    is_spared = True

    async def put(self, path: str, data: Any, *args: Any, **options: Any) -> Any:
        if "/compactions/" in path and not self.is_spared:
            raise _DeadError
        return await super().put(path, data, *args, **options)


class _DeadError(Exception):
    pass


async def test_a_compactor_that_dies_between_its_claims_leaves_the_jobs_of_the_one_before_free() -> None:
    """The next one would wait for the timeout, and so would each after it that lives shorter."""
    sign = WriterIdentity(holder="h", host="a", since_s=1, compactor=EmbeddedCompactor(0, "w"))
    checkpoint = Checkpoint(id=UUID(int=1), manifest_id=1, expire_s=0, create_s=1, name=sign.checkpoint_name(Epoch(1)))
    signed = replace(manifest(tree(runs=(2, 1))), writer_epoch=Epoch(1), checkpoints=(checkpoint,))
    harness = await Harness(signed, store=_StoreOfDeaths).create()
    job = entry(5001, spec(runs=(2, 1), to=1), CompactionStatus.RUNNING)
    await harness.compactions.create_new(compactions(job))
    options = {"writer_epoch": Epoch(1)}
    for number in range(3):
        harness.store.is_spared = False
        with pytest.raises(_DeadError):
            await acquire_leadership(
                harness.manifests, harness.compactions, lambda _merged: None, worker_id=f"dead-{number}", **options
            )
    harness.store.is_spared = True
    _, step = await acquire_leadership(
        harness.manifests, harness.compactions, lambda _merged: None, worker_id="next", **options
    )
    assert [each.id for each in step.reclaimed] == [job.id]
    assert (await harness.stored()).entries[0].worker is None
    told = embedded_compactor(await harness.manifest())
    assert told == EmbeddedCompactor(4, "next", ("dead-2", "dead-1", "dead-0", "w"))
