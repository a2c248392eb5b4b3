"""Checks of an existing clone: whether it matches the request, is protected, and can be completed."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.existing_clone import require_pinned, require_resumable, verify_existing
from shale.clones.request import CloneRequest, CloneSource
from shale.errors import (
    CheckpointMissing,
    CloneExternalDbMissing,
    CloneIncorrectExternalDbCheckpoint,
    CloneIncorrectFinalCheckpoint,
    InvalidDbState,
)
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.versioned import Versioned
from shale.types import KeyRange, Manifest, ManifestId, WalId
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run

LEFT, RIGHT = KeyRange.half_open(None, b"k"), KeyRange.half_open(b"k", None)
PARENT = CloneRequest(path="clone", sources=(CloneSource(path="p"),))
UNION = CloneRequest(path="clone", sources=(CloneSource(path="p", keys=LEFT), CloneSource(path="q", keys=RIGHT)))


async def fill(harness: Harness, path: str, *keys: bytes) -> None:
    async with harness.open(path) as db:
        for key in keys:
            await db.put(key, b"v")
            await db.flush("memtable")


def catalog(harness: Harness) -> DatabaseCatalog:
    return DatabaseCatalog(harness.store, harness.env)


async def cloned(harness: Harness, request: CloneRequest) -> Manifest:
    """Make the clone and return its manifest."""
    await create_clone(catalog(harness), request)
    return await harness.latest("clone")


def test_the_entry_is_that_of_the_source_and_of_its_checkpoint() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        kept = await create_checkpoint(await harness.manifests("p").load(), harness.env, lifetime_ms=None)
        request = CloneRequest(path="clone", sources=(CloneSource(path="p", checkpoint=kept.id),))
        clone = await cloned(harness, request)
        for asked in (request, PARENT):
            (entry,) = await verify_existing(catalog(harness), clone, asked)
            assert entry is not None
            assert (entry.path, entry.source_checkpoint_id) == ("p", kept.id)
        other = CloneRequest(path="clone", sources=(CloneSource(path="p", checkpoint=UUID(int=5)),))
        with pytest.raises(CloneIncorrectExternalDbCheckpoint, match=str(UUID(int=5))):
            await verify_existing(catalog(harness), clone, other)
        elsewhere = CloneRequest(path="clone", sources=(CloneSource(path="q"),))
        with pytest.raises(CloneIncorrectExternalDbCheckpoint, match="not made of q"):
            await verify_existing(catalog(harness), clone, elsewhere)

    run(main)


def test_of_two_entries_of_one_path_the_last_is_the_direct_one() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        clone = await cloned(harness, PARENT)
        (direct,) = clone.external_dbs
        inherited = replace(direct, source_checkpoint_id=UUID(int=1), final_checkpoint_id=UUID(int=2))
        both = replace(clone, external_dbs=(inherited, direct))
        assert await verify_existing(catalog(harness), both, PARENT) == (direct,)

    run(main)


def test_a_database_without_sources_is_no_clone() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "clone", b"a")
        with pytest.raises(CloneExternalDbMissing, match="clone is no clone"):
            await verify_existing(catalog(harness), await harness.latest("clone"), PARENT)

    run(main)


def test_the_entry_of_a_clone_of_a_clone_is_the_direct_one() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "o", b"a")
        await create_clone(catalog(harness), CloneRequest(path="p", sources=(CloneSource(path="o"),)))
        clone = await cloned(harness, PARENT)
        assert [each.path for each in clone.external_dbs] == ["o", "p"]
        (entry,) = await verify_existing(catalog(harness), clone, PARENT)
        assert entry == clone.external_dbs[1]

    run(main)


def test_a_source_without_ssts_of_its_own_has_no_entry_in_a_union() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        await fill(harness, "q")
        clone = await cloned(harness, UNION)
        entries = await verify_existing(catalog(harness), clone, UNION)
        assert [each.path if each is not None else None for each in entries] == ["p", None]
        await fill(harness, "q", b"z")  # now it would be another union
        with pytest.raises(CloneIncorrectExternalDbCheckpoint, match="not made of q"):
            await verify_existing(catalog(harness), clone, UNION)

    run(main)


def test_a_clone_is_protected_by_its_checkpoint_in_every_source() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        await fill(harness, "q", b"z")
        clone = await cloned(harness, UNION)
        await require_pinned(catalog(harness), clone)
        final_id = clone.external_dbs[1].final_checkpoint_id
        assert final_id is not None
        await release_checkpoints(await harness.manifests("q").load(), [final_id])
        with pytest.raises(CloneIncorrectFinalCheckpoint, match=f"q does not hold checkpoint {final_id}"):
            await require_pinned(catalog(harness), clone)
        detached = replace(clone.external_dbs[1], final_checkpoint_id=None)
        await require_pinned(catalog(harness), replace(clone, external_dbs=(clone.external_dbs[0], detached)))

    run(main)


def half_built(clone: Manifest, version: int = 1) -> Versioned[Manifest]:
    return Versioned(ManifestId(version), replace(clone, initialized=False))


def test_a_half_built_clone_is_completed_only_if_it_was_never_opened() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        clone = await cloned(harness, PARENT)
        await require_resumable(catalog(harness), PARENT, half_built(clone))
        with pytest.raises(InvalidDbState, match="opened or sealed"):
            await require_resumable(catalog(harness), PARENT, half_built(clone, 2))

    run(main)


@pytest.mark.parametrize("field", ["replay_after_wal_id", "next_wal_sst_id"])
def test_other_bounds_of_the_log_are_those_of_another_source(field: str) -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        clone = await cloned(harness, PARENT)
        moved = replace(clone, **{field: WalId(getattr(clone, field) + 1)})
        with pytest.raises(InvalidDbState, match="has other sources"):
            await require_resumable(catalog(harness), PARENT, half_built(moved))

    run(main)


def test_one_of_the_two_checkpoints_in_the_source_is_enough_to_complete_it() -> None:
    async def main() -> None:
        harness = Harness()
        await fill(harness, "p", b"a")
        clone = await cloned(harness, PARENT)
        (entry,) = clone.external_dbs
        assert entry.final_checkpoint_id is not None
        await release_checkpoints(await harness.manifests("p").load(), [entry.source_checkpoint_id])
        await require_resumable(catalog(harness), PARENT, half_built(clone))
        await release_checkpoints(await harness.manifests("p").load(), [entry.final_checkpoint_id])
        with pytest.raises(CheckpointMissing, match=str(entry.source_checkpoint_id)):
            await require_resumable(catalog(harness), PARENT, half_built(clone))

    run(main)
