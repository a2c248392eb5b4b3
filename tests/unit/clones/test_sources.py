"""Sources of a clone: the checkpoint and manifest of each, and what each step writes."""

import pytest

from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.clones.sources import EPHEMERAL_LIFETIME_MS, reresolve, resolve_source, with_checkpoint_ids
from shale.errors import (
    AmbiguousCheckpoint,
    CheckpointMissing,
    InvalidDbState,
    LatestRecordMissing,
    ManifestMissing,
)
from shale.format.names import manifest_key
from shale.protocol.checkpoints import create_checkpoint
from shale.types import Checkpoint, KeyRange
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run


def request(*sources: CloneSource, allow_wal_gap: bool = False) -> CloneRequest:
    return CloneRequest(path="clone", sources=sources, allow_wal_gap=allow_wal_gap)


def catalog(harness: Harness) -> DatabaseCatalog:
    return DatabaseCatalog(harness.store, harness.env)


async def checkpoint(harness: Harness, *, name: str | None = None, lifetime_ms: int | None = None) -> Checkpoint:
    stored = await harness.manifests().load()
    return await create_checkpoint(stored, harness.env, lifetime_ms=lifetime_ms, name=name)


async def flushed(harness: Harness) -> None:
    """Make a database whose rows are all in L0."""
    async with harness.open("db") as db:
        await db.put(b"a", b"1")
        await db.put(b"m", b"1")
        await db.flush("memtable")


def test_names_become_ids_and_ids_stay_also_unknown_ones() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        kept = await checkpoint(harness, name="nightly")
        unknown = harness.env.ids.uuid()
        for given, expected in (("nightly", kept.id), (str(unknown), unknown), (unknown, unknown), (None, None)):
            found = await with_checkpoint_ids(catalog(harness), request(CloneSource(path="db", checkpoint=given)))
            assert [source.checkpoint for source in found.sources] == [expected]
        with pytest.raises(CheckpointMissing):
            await with_checkpoint_ids(catalog(harness), request(CloneSource(path="db", checkpoint="weekly")))
        await checkpoint(harness, name="nightly")
        with pytest.raises(AmbiguousCheckpoint):
            await with_checkpoint_ids(catalog(harness), request(CloneSource(path="db", checkpoint="nightly")))

    run(main)


def test_an_expired_checkpoint_has_an_id_but_is_no_source() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        brief = await checkpoint(harness, name="brief", lifetime_ms=1000)
        harness.clock.sleep(2)
        named = await with_checkpoint_ids(catalog(harness), request(CloneSource(path="db", checkpoint="brief")))
        assert named.sources[0].checkpoint == brief.id
        for resolve in (resolve_source, reresolve):
            with pytest.raises(CheckpointMissing):
                await resolve(catalog(harness), named, named.sources[0])

    run(main)


def test_without_a_checkpoint_a_temporary_one_protects_the_newest_state() -> None:
    async def main() -> None:
        harness = Harness()
        await flushed(harness)
        before = await harness.latest()
        source = CloneSource(path="db")
        found = await resolve_source(catalog(harness), request(source), source)
        after = await harness.latest()
        (made,) = after.checkpoints
        assert found.source.checkpoint_id == made.id
        assert made.expire_s == (harness.clock.ms + EPHEMERAL_LIFETIME_MS) // 1000
        assert (found.source.manifest.tree, found.wal_files_left_out) == (before.tree, 0)

    run(main)


def test_a_source_is_resolved_again_without_a_write() -> None:
    async def main() -> None:
        harness = Harness()
        await flushed(harness)
        kept = await checkpoint(harness)
        before = dict(harness.store.objects)
        for source in (CloneSource(path="db"), CloneSource(path="db", checkpoint=kept.id)):
            found = await reresolve(catalog(harness), request(source), source)
            assert found.manifest.tree == (await harness.latest()).tree
        assert harness.store.objects == before

    run(main)


def test_a_checkpoint_is_read_as_it_was() -> None:
    async def main() -> None:
        harness = Harness()
        await flushed(harness)
        old, kept = await harness.latest(), await checkpoint(harness)
        await flushed(harness)
        source = CloneSource(path="db", checkpoint=kept.id)
        for found in (
            (await resolve_source(catalog(harness), request(source), source)).source,
            await reresolve(catalog(harness), request(source), source),
        ):
            assert (found.checkpoint_id, found.manifest.tree) == (kept.id, old.tree)
        assert (await harness.latest()).tree != old.tree
        await harness.store.delete(manifest_key("db", kept.manifest_id))
        with pytest.raises(ManifestMissing):
            await resolve_source(catalog(harness), request(source), source)

    run(main)


def test_only_the_keys_that_are_taken_are_in_the_manifest() -> None:
    async def main() -> None:
        harness = Harness()
        await flushed(harness)
        for keys, count in ((KeyRange.half_open(b"a", b"b"), 1), (KeyRange.half_open(b"x", None), 0)):
            source = CloneSource(path="db", keys=keys)
            found = await resolve_source(catalog(harness), request(source), source)
            assert found.source.named_range == keys
            assert [view.visible_range for view in found.source.manifest.tree.l0] == [keys] * count

    run(main)


async def with_rows_only_in_the_wal(harness: Harness) -> Checkpoint:
    """Write rows that are only in the WAL, take a checkpoint after them, and write more."""
    db = await harness.open("db", flush_interval=None)
    await db.put(b"a", b"1")
    await db.flush("wal")
    harness.clock.sleep(1)
    kept = await checkpoint(harness)
    harness.clock.sleep(1)
    await db.put(b"b", b"1")
    await db.flush("wal")
    return kept


@pytest.mark.parametrize(("named", "files"), [(True, "1 file"), (False, "2 files")])
def test_rows_that_the_clone_lacks_are_refused_and_counted_if_that_is_allowed(named: bool, files: str) -> None:
    async def main() -> None:
        harness = Harness()
        kept = await with_rows_only_in_the_wal(harness)
        source = CloneSource(path="db", checkpoint=kept.id if named else None)
        before = dict(harness.store.objects)
        with pytest.raises(InvalidDbState, match=f"holds {files} of rows"):
            await resolve_source(catalog(harness), request(source), source)
        assert harness.store.objects == before
        found = await resolve_source(catalog(harness), request(source, allow_wal_gap=True), source)
        assert found.wal_files_left_out == int(files[0])

    run(main)


def test_rows_in_the_wal_are_in_an_l0_of_what_is_cut() -> None:
    async def main() -> None:
        harness = Harness()
        await flushed(harness)
        await harness.make("db")  # its last row is in a WAL file that the manifest names, once it is opened again
        db = await harness.open("db", flush_interval=None)
        await db.put(b"z", b"1")
        await db.close("wal")
        whole = CloneSource(path="db")
        cut = CloneSource(path="db", keys=KeyRange.half_open(b"a", b"b"))
        manifest = (await resolve_source(catalog(harness), request(whole), whole)).source.manifest
        has_wal = manifest.next_wal_sst_id - manifest.replay_after_wal_id > 1
        assert has_wal
        found = await resolve_source(catalog(harness), request(cut), cut)
        taken = found.source.manifest
        assert taken.replay_after_wal_id == taken.next_wal_sst_id - 1
        assert taken.last_l0_seq > manifest.last_l0_seq
        (made,) = found.built
        assert dict(found.source.own) == {made.id: ""}

    run(main)


def test_a_path_without_a_database_is_named() -> None:
    async def main() -> None:
        harness, source = Harness(), CloneSource(path="elsewhere", checkpoint="nightly")
        for resolve in (resolve_source, reresolve):
            with pytest.raises(LatestRecordMissing, match="elsewhere"):
                await resolve(catalog(harness), request(source), source)
        with pytest.raises(LatestRecordMissing, match="elsewhere"):
            await with_checkpoint_ids(catalog(harness), request(source))

    run(main)


def test_rows_of_the_wal_that_are_in_l0_too_are_no_obstacle() -> None:
    """A memtable flush alone leaves its last WAL file in the range of the manifest."""

    async def main() -> None:
        harness = Harness()
        db = await harness.open("db", flush_interval=None)
        for key in (b"a", b"m"):
            await db.put(key, b"1")
            await db.flush("wal")
        await db.flush("memtable")
        cut = CloneSource(path="db", keys=KeyRange.half_open(b"a", b"b"))
        for source in (cut, CloneSource(path="db")):
            found = await resolve_source(catalog(harness), request(source), source)
            assert found.wal_files_left_out == 0
        await db.close()

    run(main)
