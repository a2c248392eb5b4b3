"""The metadata of a database and the objects they name: complete, missing and wrong objects."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import anyio
import pytest

import shale
from shale.admin.verify.inventory import Inventory, read_inventory
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CheckpointMissing, CorruptionError, InvalidRequestError, LatestRecordMissing
from shale.format.boundary import encode_boundary
from shale.format.names import boundary_key, manifest_key, sst_key, wal_key
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.types import (
    Compaction,
    CompactionContext,
    Compactions,
    CompactionStatus,
    KeyRange,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Subcompaction,
    TieredSpec,
    Tree,
    Ulid,
    WalId,
    WorkerClaim,
)

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
NAMED = UUID(int=7)


async def written() -> tuple[MemoryStore, UUID]:
    """Write a database with three L0s, two checkpoints and a WAL; return the second checkpoint."""
    store = MemoryStore()
    async with shale.Db.open("db", store=store) as db:
        for number in range(3):
            await db.put(b"key-%d" % number, bytes(100))
            await db.flush("memtable")
            if number < 2:
                checkpoint = await db.checkpoint(name=f"c{number}")
        await db.put(b"in the log", b"only")
        await db.flush("wal")
    return store, checkpoint.id


async def inventory(store: MemoryStore, checkpoint: UUID | None = None) -> Inventory:
    return await read_inventory(store, None, "db", ENV, checkpoint=checkpoint)


def run(scenario: Callable[[MemoryStore, UUID], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(*await written())

    anyio.run(main)


def said(found: Inventory) -> list[str]:
    return [str(finding) for finding in found.findings]


async def latest_of(store: MemoryStore) -> tuple[int, Manifest]:
    latest = await ManifestStore(store, "db", ENV).read_latest()
    return latest.id, latest.value


def test_a_sound_database() -> None:
    async def scenario(store: MemoryStore, checkpoint_id: UUID) -> None:
        latest_id, manifest = await latest_of(store)
        found = await inventory(store)
        assert found.findings == ()
        assert found.latest_id == latest_id
        assert {needed.sst.id for needed in found.ssts} == set(manifest.ssts())
        assert set(found.manifests) == {latest_id, *(entry.manifest_id for entry in manifest.checkpoints)}
        of_checkpoint = await inventory(store, checkpoint_id)
        assert len(of_checkpoint.ssts) == 2
        assert of_checkpoint.findings == of_checkpoint.orphans == ()

    run(scenario)


def test_missing_metadata_raises_the_matching_error() -> None:
    async def nothing() -> None:
        with pytest.raises(LatestRecordMissing):
            await inventory(MemoryStore())

    anyio.run(nothing)

    async def scenario(store: MemoryStore, _: UUID) -> None:
        with pytest.raises(CheckpointMissing):
            await inventory(store, NAMED)
        manifest = (await latest_of(store))[1]
        kept = manifest.checkpoints[0].manifest_id
        await store.delete(manifest_key("db", kept))
        found = await inventory(store)
        assert said(found) == [
            f"{manifest_key('db', kept)}: a checkpoint keeps this version, and it is gone",
        ]

    run(scenario)


def test_every_damaged_version_is_named() -> None:
    async def scenario(store: MemoryStore, _: UUID) -> None:
        await store.put(manifest_key("db", 2), b"\x00\x02 nonsense")
        await CompactionsStore(store, "db", ENV).create_new(Compactions())
        for boundary in (b"x", encode_boundary(1)):
            await store.put(boundary_key("db", "compactions"), boundary)
            found = await inventory(store)
            assert [finding.object for finding in found.findings] == [
                boundary_key("db", "compactions"),
                manifest_key("db", 2),
            ]
        latest_id, _manifest = await latest_of(store)
        await store.put(manifest_key("db", latest_id), b"\x00\x02 nonsense")
        with pytest.raises(CorruptionError):
            await inventory(store)

    run(scenario)


def test_a_lost_wal_file() -> None:
    async def scenario(store: MemoryStore, _: UUID) -> None:
        async with shale.Db.open("db", store=store) as db:
            for number in range(3):
                await db.put(b"%d" % number, b"")
                await db.flush("wal")
            gone = (await latest_of(store))[1].replay_after_wal_id + 2
            await store.delete(wal_key("db", gone))
            found = await inventory(store)
            assert said(found) == [f"{wal_key('db', gone)}: the file is gone, and replay would need it"]

    run(scenario)


def test_orphans_have_reasons() -> None:
    async def scenario(store: MemoryStore, _: UUID) -> None:
        manifest = (await latest_of(store))[1]
        newest_ms = max(sst_id.ms for sst_id in manifest.ssts())
        old, late, promised = (Ulid.from_parts(newest_ms + ms, 5) for ms in (-60_000, 60_000, -50_000))
        for sst_id in (old, late, promised):
            await store.put(sst_key("db", sst_id), b"sst")
        found = await inventory(store)
        assert {orphan.reason for orphan in found.orphans if "compacted" in orphan.object} == {
            "there was no compaction yet, and until then GC keeps all SSTs"
        }
        job = Ulid.from_parts(newest_ms + 1000, 1)
        sst = Sst(id=promised, info=SstInfo(index_len=4))
        lost = Sst(id=Ulid.from_parts(newest_ms + 2000, 1), info=SstInfo(index_len=4))
        part = Subcompaction(range=KeyRange(), output_ssts=(sst, lost))
        entry = Compaction(
            id=job,
            spec=TieredSpec(destination=RunId(0)),
            status=CompactionStatus.RUNNING,
            worker=WorkerClaim(worker_id="w", last_heartbeat_ms=1),
            ctx=CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0)),
        )
        await CompactionsStore(store, "db", ENV).create_new(Compactions(entries=(entry,)))
        found = await inventory(store)
        reasons = {orphan.object: orphan.reason for orphan in found.orphans if "compacted" in orphan.object}
        assert reasons == {
            sst_key("db", old): "it is unreferenced: GC deletes it once it is old enough",
            sst_key("db", late): "a compaction on record may have written it and not yet committed",
            sst_key("db", promised): f"it is an output of compaction {job}, which is active",
        }
        assert said(found) == [f"{sst_key('db', lost.id)}: compaction {job} relies on this output, and it is gone"]
        assert found.findings[0].offset is None

    run(scenario)


def view(chance: int, first: bytes, last: bytes, *, visible: KeyRange | None = None, ms: int = 0) -> SstView:
    id_ = Ulid.from_parts(1_700_000_000_000 + ms, chance)
    info = SstInfo(first_entry=first, last_entry=last, index_offset=10, index_len=10)
    return SstView(id=id_, sst=Sst(id=id_, info=info), visible_range=visible)


A, B, C = view(1, b"a", b"c"), view(2, b"c", b"f", ms=5), view(3, b"b", b"d", ms=9)


@pytest.mark.parametrize(
    ("tree", "said_of_it"),
    [
        (Tree(l0=(B, A), compacted=(SortedRun(id=RunId(1), ssts=(A, B)),)), None),
        (Tree(compacted=(SortedRun(id=RunId(1), ssts=(A, C)),)), "does not start after"),
        (Tree(l0=(A, B)), "stands before the newer"),
        (Tree(l0=(A, A)), "is listed twice in L0"),
        (Tree(compacted=(SortedRun(id=RunId(1), ssts=(A,)), SortedRun(id=RunId(2), ssts=(B,)))), "do not descend"),
    ],
)
def test_rules_of_a_manifest(tree: Tree, said_of_it: str | None) -> None:
    from shale.admin.verify.rules import manifest_problems

    manifest = replace(Manifest(), tree=tree, replay_after_wal_id=WalId(0), next_wal_sst_id=WalId(1))
    problems = [what for _, what in manifest_problems(manifest, 4, "db")]
    if said_of_it is None:
        assert problems == []
    else:
        assert any(said_of_it in problem for problem in problems), problems


def test_a_log_in_an_unnamed_store_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 manifests do not name the WAL store, so every WAL file would be reported as missing."""

    async def scenario(store: MemoryStore, _: UUID) -> None:
        old = replace((await latest_of(store))[1], wal_object_store_uri="s3://logs")
        monkeypatch.setattr("shale.protocol.manifest_store.DECODE", lambda _data, path: old)
        with pytest.raises(InvalidRequestError, match="keeps its WAL in s3://logs: name it with wal_store"):
            await inventory(store)
        assert (await read_inventory(store, MemoryStore(), "db", ENV)).findings, "it is looked for where it was named"

    run(scenario)


def test_an_expired_checkpoint_keeps_no_wal_file() -> None:
    """The collector deletes it before it computes the referenced objects, so it must not hide unneeded files."""

    async def scenario(store: MemoryStore, _: UUID) -> None:
        stored = await ManifestStore(store, "db", ENV).load()
        old = replace(stored.value.checkpoints[0], expire_s=1)
        await stored.apply(lambda current: replace(current.value, checkpoints=()))
        unneeded = [orphan for orphan in (await inventory(store)).orphans if "/wal/" in orphan.object]
        assert unneeded
        await stored.apply(lambda current: replace(current.value, checkpoints=(old,)))
        assert [orphan for orphan in (await inventory(store)).orphans if "/wal/" in orphan.object] == unneeded

    run(scenario)


def test_a_version_that_only_an_expired_checkpoint_names_may_be_gone() -> None:
    """A collector with a fast clock may have deleted the version; the checkpoint can no longer be opened."""

    async def scenario(store: MemoryStore, checkpoint_id: UUID) -> None:
        stored = await ManifestStore(store, "db", ENV).load()
        over = tuple(replace(entry, expire_s=1) for entry in stored.value.checkpoints)
        await stored.apply(lambda current: replace(current.value, checkpoints=over))
        for entry in over:
            await store.delete(manifest_key("db", entry.manifest_id))
        assert (await inventory(store)).findings == ()
        for wanted in (checkpoint_id, "c1"):
            with pytest.raises(CheckpointMissing):
                await read_inventory(store, None, "db", ENV, checkpoint=wanted)

    run(scenario)


def test_a_checkpoint_by_its_name() -> None:
    async def scenario(store: MemoryStore, checkpoint_id: UUID) -> None:
        found = await read_inventory(store, None, "db", ENV, checkpoint="c1")
        assert (found.checkpoint, len(found.ssts)) == (checkpoint_id, 2)
        assert (await inventory(store)).checkpoint is None

    run(scenario)
