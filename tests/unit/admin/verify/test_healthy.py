"""Undamaged databases have no findings; work in progress is reported as such."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

import shale
from shale.admin.admin import Admin
from shale.admin.verify.database import VerifyOptions, VerifyProgress, VerifyTarget, _workers, verify_database
from shale.admin.verify.inventory import read_inventory
from shale.admin.verify.report import DatabaseState, VerifyReport, report_json
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.crypto.aes_gcm import AesGcm
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import ClosedError, InvalidRequestError, LatestRecordMissing
from shale.format.blocks.transform import BlockTransformer
from shale.format.names import compaction_record_key, deleting_key, destroyed_key, sst_key
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.sst.verify.codes import Code
from shale.sst.verify.sst import VerifyDepth
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, KeyRange, Manifest, Ulid
from tests.unit.admin.verify.harness import CLONE, PATH, Harness

Scenario = Callable[[MemoryStore], Awaitable[None]]
ENV = Env(SystemClock(), random.Random(1), InlineCpu())


def run(scenario: Scenario) -> None:
    anyio.run(scenario, MemoryStore())


async def fill(store: ObjectStore, path: str, keys: str) -> None:
    """Write three L0s and no row that is only in the WAL."""
    async with shale.Db.open(path, store=store, env=ENV) as db:
        for number in range(3):
            for letter in keys:
                await db.put(letter.encode(), b"%d" % number)
            await db.flush("wal")
            await db.flush("memtable")


async def verify(
    store: ObjectStore,
    path: str = PATH,
    *,
    depth: VerifyDepth = VerifyDepth.DEEP,
    wal_store: ObjectStore | None = None,
    transformer: BlockTransformer | None = None,
) -> VerifyReport:
    checked = VerifyTarget(store=store, wal_store=wal_store, root=path, env=ENV, transformer=transformer)
    return await verify_database(checked, VerifyOptions(depth=depth))


async def require_sound(store: ObjectStore, path: str = PATH, **where: object) -> VerifyReport:
    reports = [await verify(store, path, depth=depth, **where) for depth in VerifyDepth]  # type: ignore[arg-type]
    assert [report.findings for report in reports] == [(), (), ()]
    return reports[-1]


def test_new_and_empty() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(LatestRecordMissing):
            await verify(store)
        async with shale.Db.open(PATH, store=store, env=ENV):
            await require_sound(store)
        await require_sound(store)

    run(scenario)


def test_in_segments() -> None:
    async def scenario(store: MemoryStore) -> None:
        from shale.format.sst.filter_policy import FixedPrefix

        async with shale.Db.open(PATH, store=store, env=ENV, segment_extractor=FixedPrefix("first", 1)) as db:
            for number in range(3):
                for letter in "abc":
                    await db.put(f"{letter}{number}".encode(), b"value")
                await db.flush("memtable")
            await db.put(b"zz", b"in the log")
            await db.flush("wal")
        assert (await require_sound(store)).ssts == 10

    run(scenario)


def test_a_log_elsewhere() -> None:
    async def scenario(store: MemoryStore) -> None:
        logs = MemoryStore()
        async with shale.Db.open(PATH, store=store, wal_store=logs, env=ENV) as db:
            for number in range(3):
                await db.put(b"%d" % number, b"")
                await db.flush("wal")
            await db.close("wal")
        assert (await require_sound(store, wal_store=logs)).wal_files == 4
        (finding,) = (await verify(store)).findings
        assert finding.code is Code.WAL_MISSING

    run(scenario)


def test_without_a_log() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open(PATH, store=store, env=ENV, wal_enabled=False) as db:
            await db.put(b"a", b"1")
            await db.flush("memtable")
        await require_sound(store)

    run(scenario)


@pytest.mark.parametrize("given", ["the key", "none", "another"])
@pytest.mark.parametrize("flushed", [True, False])
def test_encrypted(given: str, flushed: bool) -> None:
    async def scenario(store: MemoryStore) -> None:
        right, wrong = AesGcm({"k": bytes(32)}), AesGcm({"k": b"1" * 32})
        async with shale.Db.open(PATH, store=store, env=ENV, block_transformer=right, min_filter_keys=1) as db:
            for letter in "abcdef":
                await db.put(letter.encode(), b"secret")
                await db.flush("wal")
            if flushed:
                await db.flush("memtable")
            await db.close("wal")
        if given == "the key":
            await require_sound(store, transformer=right)
            return
        for depth in VerifyDepth:
            report = await verify(store, depth=depth, transformer=wrong if given == "another" else None)
            (finding,) = report.findings
            assert (finding.object, finding.code) == (PATH, Code.ENCRYPTED)
            assert ("give the key" in finding.what) == (given == "none")

    run(scenario)


def requests() -> dict[str, list[CloneRequest]]:
    halves = [CloneSource(path=name) for name in ("left", "right")]
    return {
        "a clone": [CloneRequest(path=CLONE, sources=(CloneSource(path=PATH),))],
        "a clone of a clone": [
            CloneRequest(path="middle", sources=(CloneSource(path=PATH),)),
            CloneRequest(path=CLONE, sources=(CloneSource(path="middle"),)),
        ],
        "a part": [CloneRequest(path=CLONE, sources=(CloneSource(path=PATH, keys=KeyRange.half_open(b"c", b"k")),))],
        "split and united": [
            CloneRequest(path="left", sources=(CloneSource(path=PATH, keys=KeyRange.half_open(None, b"g")),)),
            CloneRequest(path="right", sources=(CloneSource(path=PATH, keys=KeyRange.half_open(b"g", None)),)),
            CloneRequest(path=CLONE, sources=tuple(halves)),
        ],
        "united": [CloneRequest(path=CLONE, sources=(CloneSource(path=PATH), CloneSource(path="db2")))],
    }


@pytest.mark.parametrize("name", requests())
def test_clones(name: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        await fill(store, PATH, "abcdefghijklm")
        await fill(store, "db2", "nopqrstuvwxyz")
        for request in requests()[name]:
            await create_clone(DatabaseCatalog(store, ENV), request)
        report = await require_sound(store, CLONE)
        assert report.ssts >= 3
        assert report.borrowed
        async with shale.Db.open(CLONE, store=store, env=ENV, enforce_visible_range=EVERYTHING) as db:
            await db.put(b"a", b"newer")
            await db.flush("memtable")
        await require_sound(store, CLONE)
        await require_sound(store)

    run(scenario)


def test_unfinished_work_is_reported_as_such() -> None:
    async def main() -> None:
        harness = await Harness.build()
        await harness.rewrite(lambda manifest: replace(manifest, initialized=False), CLONE, version=1)
        await harness.store.delete(f"{CLONE}/manifest/{2:020}.manifest")
        wal = [meta.key for meta in await harness.store.list(f"{CLONE}/wal/")]
        await harness.store.delete(wal[0])
        report = await harness.verify(CLONE)
        assert (report.findings, report.state) == ((), DatabaseState.HALF_BUILT_CLONE)
        assert report.remarks[0].startswith("a clone of db was not completed")
        await harness.rewrite(lambda manifest: replace(manifest, initialized=False))
        assert (await harness.verify()).state is DatabaseState.SEALED
        await harness.store.put(destroyed_key(PATH), b"{}")
        report = await harness.verify()
        assert report.remarks[0].startswith("it is marked as destroyed")
        await harness.store.put(deleting_key(PATH), b"")
        for meta in await harness.store.list(f"{PATH}/compacted/"):
            await harness.store.delete(meta.key)
        report = await harness.verify()
        assert (report.state, report.findings, report.is_complete) == (DatabaseState.DELETING, (), False)

    anyio.run(main)


def test_objects_that_only_a_checkpoint_pins_are_reported() -> None:
    async def main() -> None:
        harness = await Harness.build()
        _, latest = await harness.latest()
        async with Admin(PATH, store=harness.store, env=harness.env) as admin:
            report = await admin.verify(deep=True, checkpoint=latest.checkpoints[0].id)
            assert (report.findings, report.ssts, report.orphans) == ((), 3, ())
            # Objects newer than the checkpoint are not checked then.
            await harness.store.delete(sst_key(PATH, latest.tree.l0[0].sst.id))
            assert (await admin.verify(checkpoint=latest.checkpoints[0].id)).is_sound
            assert not (await admin.verify()).is_sound
        with pytest.raises(ClosedError):
            await admin.verify()

    anyio.run(main)


def test_orphans_and_who_keeps_them() -> None:
    async def main() -> None:
        harness = await Harness.build()
        old = sst_key(PATH, Ulid.from_parts(1000, 1))
        await harness.store.put(old, b"sst")
        await harness.store.put(f"{PATH}/manifest/{7:020}.manifest#3", b"staged")
        copied = f"{PATH}/manifest/{7:020}.manifest.tmp"
        await harness.store.put(copied, b"half")
        await harness.store.put(f"{PATH}/notes.txt", b"mine")
        await harness.store.put(compaction_record_key(PATH, Ulid.from_parts(1000, 2)), b"{}")
        report = await harness.verify()
        assert report.is_sound
        told = {each["object"]: each for each in report_json(report, min_age_ms=300_000)["orphans"]["listed"]}
        assert told[old]["collected_from_ms"] == 301_000
        assert told[f"{PATH}/notes.txt"]["collected_from_ms"] is None
        assert "GC deletes it after a day" in told[f"{PATH}/manifest/{7:020}.manifest#3"]["reason"]
        assert "GC deletes it after a day" in told[copied]["reason"]
        assert not any("compaction_records" in each for each in told), "GC deletes records a week after the end"
        assert sum(total.objects for total in report.orphan_totals.values()) == len(told)

    anyio.run(main)


def test_progress_reaches_the_end() -> None:
    async def main() -> None:
        harness = await Harness.build()
        seen: list[VerifyProgress] = []
        async with Admin(PATH, store=harness.store, env=harness.env) as admin:
            await admin.verify(on_progress=seen.append, concurrency=1)
        assert [each.stage for each in seen[:2]] == ["metadata", "objects"]
        assert seen[-1].done == seen[-1].total > 0

    anyio.run(main)


def test_a_store_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        harness = await Harness.build()
        old = replace((await harness.latest())[1], wal_object_store_uri="s3://logs")
        monkeypatch.setattr("shale.protocol.manifest_store.DECODE", lambda _data, path: old)
        with pytest.raises(InvalidRequestError, match="name it with wal_store"):
            await harness.verify()

    anyio.run(main)


class CollectedMeanwhile(MemoryStore):
    """A store in which objects named at the start of the check are superseded and collected before they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.collect: Callable[[], Awaitable[None]] | None = None

    async def head(self, key: str):  # type: ignore[no-untyped-def]
        if "/compacted/" in key and self.collect is not None:
            collect, self.collect = self.collect, None
            await collect()
        return await super().head(key)


def test_nothing_that_a_collector_took_meanwhile_is_reported() -> None:
    async def main() -> None:
        store = CollectedMeanwhile()
        await fill(store, PATH, "abc")

        async def collect() -> None:
            stored = await ManifestStore(store, PATH, ENV).load()
            doomed = stored.value.tree.l0[-1]

            def compacted(current: Versioned[Manifest]) -> Manifest:
                taken = replace(
                    current.value.tree, l0=current.value.tree.l0[:-1], last_compacted_l0_sst_view_id=doomed.id
                )
                return replace(current.value, tree=taken)

            await stored.apply(compacted)
            await store.delete(sst_key(PATH, doomed.sst.id))

        store.collect = collect
        report = await verify(store, depth=VerifyDepth.QUICK)
        assert store.collect is None, "it happened"
        assert report.findings == ()
        lost = (await ManifestStore(store, PATH, ENV).read_latest()).value.tree.l0[0].sst.id
        await store.delete(sst_key(PATH, lost))
        assert [finding.object for finding in (await verify(store)).findings] == [sst_key(PATH, lost)]

    anyio.run(main)


def test_large_parts_are_read_one_by_one() -> None:
    """Memory is bounded: 64 MiB of index and filter, or of a WAL file, leave one worker."""

    async def main() -> None:
        harness = await Harness.build()
        inventory = await read_inventory(harness.store, None, PATH, harness.env)
        needed = inventory.ssts[0]
        for mebibytes, workers in ((1, 8), (5, 3), (64, 1)):
            info = replace(needed.sst.info, stats_len=mebibytes * 2**20)
            large = replace(inventory, ssts=(replace(needed, sst=replace(needed.sst, info=info)),))
            assert _workers(large, VerifyOptions(depth=VerifyDepth.QUICK)) == workers
            long = replace(inventory, wal_files=(replace(inventory.wal_files[0], size=mebibytes * 2**20),))
            assert _workers(long, VerifyOptions(depth=VerifyDepth.QUICK)) == workers
        assert _workers(inventory, VerifyOptions(concurrency=3)) == 3
        assert _workers(inventory, VerifyOptions()) == 4
        assert _workers(inventory, VerifyOptions(depth=VerifyDepth.DEEP)) == 2

    anyio.run(main)
