"""One damage at a time: verification finds each, with its code and the path of the damaged object."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import anyio
import numpy as np
import pytest

from shale.format.boundary import encode_boundary
from shale.format.names import manifest_key, manifest_prefix, sst_key, wal_key, wal_prefix
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import release_checkpoints
from shale.sst.verify.codes import MEANINGS, Code, Severity
from shale.sst.verify.sst import VerifyDepth
from shale.sst.wal_builder import build_wal_sst
from shale.types import (
    Compaction,
    CompactionContext,
    CompactionStatus,
    Compression,
    Entry,
    Epoch,
    ExternalDb,
    KeyRange,
    Manifest,
    ManifestId,
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
from shale.types.ranges import UNBOUNDED, excluded
from tests.paths import REPOSITORY
from tests.unit.admin.verify.harness import CLONE, NAMED, OLD_MS, PATH, Harness
from tests.unit.sst.verify.forge import SOUND, Forge, row

DEEP = VerifyDepth.DEEP
Break = Callable[[Harness], Awaitable[str]]


@dataclass(frozen=True)
class Damage:
    """``do`` damages an object and returns the key that the finding must name; ``depth`` is enough to find it."""

    name: str
    code: Code
    do: Break
    path: str = PATH
    depth: VerifyDepth = VerifyDepth.QUICK


async def sst_gone(harness: Harness) -> str:
    return await harness.gone(sst_key(PATH, (await harness.run_sst()).id))


async def sst_cut(harness: Harness, size: int) -> str:
    return await harness.edit(sst_key(PATH, (await harness.run_sst()).id), lambda data: data[:size])


async def sst_flipped(harness: Harness, part: str) -> str:
    sst = await harness.run_sst()
    place = {
        "block": 5,
        "filter": sst.info.filter_offset + 1,
        "index": sst.info.index_offset + 1,
        "stats": sst.info.stats_offset + 1,
        "footer": sst.info.sections_end + 20,
    }
    return await harness.flip(sst_key(PATH, sst.id), place[part])


async def sst_of_others(harness: Harness) -> str:
    other = await harness.sst(b"zz", OLD_MS + 5)
    got = await harness.store.get(sst_key(PATH, other.id))
    assert got is not None
    await harness.store.delete(sst_key(PATH, other.id))
    return await harness.edit(sst_key(PATH, (await harness.run_sst()).id), lambda _: bytes(got.data))


async def forged(harness: Harness, change: Callable[[Forge], None]) -> str:
    """Put a run of a faulty writer in front of the run of the database."""
    blocks = [[row(b"%02d" % number) for number in range(20)]] if change is _wrong_table else SOUND
    forge = Forge([list(block) for block in blocks])
    change(forge)
    data, info = forge.write()
    sst = await harness.put_sst(data, Sst(id=Ulid.from_parts(OLD_MS + 7, 9), info=info))
    run = SortedRun(id=RunId(9), ssts=(SstView.identity(sst),))
    await harness.rewrite_tree(lambda tree: replace(tree, compacted=(run, *tree.compacted)))
    return sst_key(PATH, sst.id)


def _swapped(forge: Forge) -> None:
    forge.blocks[0].reverse()


def _separator(forge: Forge) -> None:
    forge.separators[1] = b"ca"


def _separators_swapped(forge: Forge) -> None:
    forge.separators[1:] = reversed(forge.separators[1:])
    forge.separators[1] = b"x"


def _filter(forge: Forge) -> None:
    forge.hashed = forge.entries[:-1]


def _stats(forge: Forge) -> None:
    forge.stats = replace(forge.stats, num_puts=5, num_deletes=1)


def _few_stats(forge: Forge) -> None:
    forge.stats = replace(forge.stats, blocks=np.array([[2, 0, 0], [2, 0, 0]], np.uint16))


def _gap(forge: Forge) -> None:
    forge.gap = b"no owner"


def _last_key(forge: Forge) -> None:
    forge.last_entry = b"x"


def _wrong_table(forge: Forge) -> None:
    forge.edit_image = lambda image: image[:-4] + b"\x00\x01" + image[-2:]


async def wal_gone(harness: Harness, which: slice) -> str:
    keys = (await harness.needed_wal())[which]
    for key in keys:
        await harness.store.delete(key)
    return keys[0]


async def whole_wal_gone(harness: Harness) -> str:
    for meta in await harness.store.list(wal_prefix(PATH)):
        await harness.store.delete(meta.key)
    return wal_key(PATH, (await harness.latest())[1].replay_after_wal_id + 1)


async def wal_flipped(harness: Harness) -> str:
    return await harness.flip((await harness.needed_wal())[0], 3)


async def wal_stump(harness: Harness) -> str:
    return await harness.edit((await harness.needed_wal())[0], lambda _: b"stump")


async def wal_of_a_zombie(harness: Harness) -> str:
    key = (await harness.needed_wal())[-1]
    return await harness.edit(key, lambda _: bytes(build_wal_sst(rows_from_entries([row(b"z", 2)]), Compression.NONE)))


async def wal_passed_over(harness: Harness) -> str:
    """Let replay begin after a file with rows."""
    _, latest = await harness.latest()
    passed = int(latest.next_wal_sst_id) - 1
    await harness.rewrite(lambda it: replace(it, replay_after_wal_id=WalId(passed)))
    return wal_key(PATH, passed)


async def wal_rows_swapped(harness: Harness) -> str:
    rows = [Entry(b"z", b"", 900, 0), Entry(b"y", b"", 900, 0)]
    key = (await harness.needed_wal())[-1]
    return await harness.edit(key, lambda _: bytes(build_wal_sst(rows_from_entries(rows), Compression.NONE)))


async def old_manifest(harness: Harness) -> str:
    return await harness.edit(manifest_key(PATH, 3), lambda _: b"\x00\x02 nonsense")


async def newest_manifest(harness: Harness) -> str:
    return await harness.edit(manifest_key(PATH, (await harness.latest())[0]), lambda data: data[: len(data) // 2])


async def checkpointed_manifest_gone(harness: Harness) -> str:
    return await harness.gone(manifest_key(PATH, (await harness.latest())[1].checkpoints[0].manifest_id))


async def manifest_gap(harness: Harness) -> str:
    await harness.store.put(harness.boundary(), encode_boundary(1))
    return await harness.gone(manifest_key(PATH, 3))


async def boundary(harness: Harness, data: bytes, resource: str = "manifest") -> str:
    await harness.store.put(harness.boundary(resource), data)
    return harness.boundary(resource)


async def boundary_at_the_newest(harness: Harness) -> str:
    return await boundary(harness, encode_boundary((await harness.latest())[0]))


async def foreign_name(harness: Harness) -> str:
    key = f"{manifest_prefix(PATH)}7.manifest"
    await harness.store.put(key, b"")
    return key


def changed(**fields: object) -> Break:
    """Change fields of the newest manifest."""

    async def do(harness: Harness) -> str:
        return await harness.rewrite(lambda manifest: replace(manifest, **fields))  # type: ignore[arg-type]

    return do


def tree(change: Callable[[Tree], Tree]) -> Break:
    """Return the tree of the newest manifest."""

    async def do(harness: Harness) -> str:
        return await harness.rewrite_tree(change)

    return do


def checkpoints(change: Callable[[Manifest], Manifest]) -> Break:
    async def do(harness: Harness) -> str:
        return await harness.rewrite(change)

    return do


def _twice(manifest: Manifest) -> Manifest:
    return replace(manifest, checkpoints=(*manifest.checkpoints, manifest.checkpoints[0]))


def _ahead(manifest: Manifest) -> Manifest:
    ahead = replace(manifest.checkpoints[0], id=NAMED, manifest_id=ManifestId(999))
    return replace(manifest, checkpoints=(*manifest.checkpoints, ahead))


def seen_as(visible: KeyRange) -> Callable[[Tree], Tree]:
    return lambda before: replace(before, l0=(replace(before.l0[0], visible_range=visible), *before.l0[1:]))


def _run_twice(before: Tree) -> Tree:
    """Store runs whose ids do not descend."""
    (run,) = before.compacted
    left, right = (SortedRun(id=RunId(number), ssts=(view,)) for number, view in enumerate(run.ssts))
    return replace(before, compacted=(left, right))


def _run_overlaps(before: Tree) -> Tree:
    (run,) = before.compacted
    return replace(before, compacted=(replace(run, ssts=run.ssts[::-1]),))


async def disagreement(harness: Harness) -> str:
    """Let the version of a checkpoint contradict the newest one about an SST."""
    _, latest = await harness.latest()
    sst = latest.tree.l0[-1].sst
    other = replace(sst, info=replace(sst.info, last_entry=b"zzzzzz"))

    def change(manifest: Manifest) -> Manifest:
        l0 = tuple(SstView.identity(other) if view.sst.id == sst.id else view for view in manifest.tree.l0)
        return replace(manifest, tree=replace(manifest.tree, l0=l0))

    await harness.rewrite(change, version=latest.checkpoints[-1].manifest_id)
    return sst_key(PATH, sst.id)


async def lost_sequence(harness: Harness) -> str:
    """Store a manifest whose sequence numbers exclude the rows of the newest L0."""
    latest_id, latest = await harness.latest()
    for version in range(1, latest_id + 1):
        await harness.rewrite(lambda manifest: replace(manifest, last_l0_seq=Seq(1)), version=version)
    return sst_key(PATH, latest.tree.l0[0].sst.id)


def job(**fields: object) -> Compaction:
    fields = {"status": CompactionStatus.RUNNING, "worker": WorkerClaim(worker_id="w", last_heartbeat_ms=1), **fields}
    return Compaction(id=Ulid.from_parts(OLD_MS + 99, 1), spec=TieredSpec(destination=RunId(0)), **fields)  # type: ignore[arg-type]


def compaction(entry: Compaction, *, epoch: int = 0) -> Break:
    async def do(harness: Harness) -> str:
        return await harness.compacting(entry, epoch=epoch)

    return do


LOST = Sst(id=Ulid.from_parts(OLD_MS + 100, 3), info=SstInfo(index_len=4))


async def output_gone(harness: Harness) -> str:
    part = Subcompaction(range=KeyRange(), output_ssts=(LOST,))
    await harness.compacting(job(ctx=CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0))))
    return sst_key(PATH, LOST.id)


def _half() -> Compaction:
    part = Subcompaction(range=KeyRange.half_open(None, b"m"))
    return job(ctx=CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0)))


async def compactions_nonsense(harness: Harness) -> str:
    return await harness.edit("db/compactions/00000000000000000001.compactions", lambda _: b"\x00\x02 nonsense")


async def pin(harness: Harness) -> tuple[str, object]:
    final = (await harness.latest(CLONE))[1].external_dbs[0].final_checkpoint_id
    return manifest_prefix(PATH), final


async def pin_gone(harness: Harness) -> str:
    where, final = await pin(harness)
    await release_checkpoints(await harness.manifests().load(), [final])  # type: ignore[list-item]
    return where


async def pin_ends(harness: Harness) -> str:
    where, final = await pin(harness)

    def change(manifest: Manifest) -> Manifest:
        ending = 2**32 - 1
        kept = (replace(each, expire_s=ending) if each.id == final else each for each in manifest.checkpoints)
        return replace(manifest, checkpoints=tuple(kept))

    await harness.rewrite(change)
    return where


async def parent_gone(harness: Harness) -> str:
    for meta in await harness.store.list(manifest_prefix(PATH)):
        await harness.store.delete(meta.key)
    return manifest_prefix(PATH)


async def collision(harness: Harness) -> str:
    def change(manifest: Manifest) -> Manifest:
        (external,) = manifest.external_dbs
        other = ExternalDb(path="other", source_checkpoint_id=NAMED, final_checkpoint_id=None, sst_ids=external.sst_ids)
        return replace(manifest, external_dbs=(external, other))

    return await harness.rewrite(change, CLONE)


NONSENSE_RANGE = KeyRange.half_open(b"zzzzz", None)
TRACKER = b"\x09" + bytes(12)

DAMAGES = (
    Damage("an SST is gone", Code.OBJECT_MISSING, sst_gone),
    Damage("an SST is gone that a clone borrows", Code.OBJECT_MISSING, sst_gone, path=CLONE),
    Damage("an SST ends in its data", Code.OBJECT_SIZE, partial(sst_cut, size=100)),
    Damage("an SST is empty", Code.OBJECT_SIZE, partial(sst_cut, size=0)),
    Damage("an SST lacks its last byte", Code.UNDECODABLE, partial(sst_cut, size=-1)),
    Damage("a bit of a block", Code.CHECKSUM, partial(sst_flipped, part="block"), depth=VerifyDepth.CHECKSUMS),
    Damage("a bit of a filter", Code.CHECKSUM, partial(sst_flipped, part="filter")),
    Damage("a bit of an index", Code.CHECKSUM, partial(sst_flipped, part="index")),
    Damage("a bit of the stats", Code.CHECKSUM, partial(sst_flipped, part="stats")),
    Damage("a bit of a footer", Code.CHECKSUM, partial(sst_flipped, part="footer")),
    Damage("an SST is another one", Code.FOOTER_MISMATCH, sst_of_others),
    Damage("rows are not in order", Code.ROW_ORDER, partial(forged, change=_swapped), depth=DEEP),
    Damage(
        "a table of offsets leads elsewhere",
        Code.ROW_OFFSETS,
        partial(forged, change=_wrong_table),
        depth=DEEP,
    ),
    Damage("a separator is above its block", Code.SEPARATOR, partial(forged, change=_separator), depth=DEEP),
    Damage("separators are not in order", Code.SEPARATOR, partial(forged, change=_separators_swapped)),
    Damage("a filter denies a key", Code.FILTER_DENIES, partial(forged, change=_filter), depth=DEEP),
    Damage("stats count wrongly", Code.STATS, partial(forged, change=_stats), depth=DEEP),
    Damage("stats lack a block", Code.STATS, partial(forged, change=_few_stats)),
    Damage("bytes without an owner", Code.LAYOUT_GAP, partial(forged, change=_gap)),
    Damage("another last key", Code.KEY_RANGE, partial(forged, change=_last_key), depth=DEEP),
    Damage("rows that no manifest knows of", Code.SEQ_ABOVE_MANIFEST, lost_sequence, depth=DEEP),
    Damage("a WAL file is gone", Code.WAL_MISSING, partial(wal_gone, which=slice(1, 2))),
    Damage("WAL files are gone", Code.WAL_MISSING, partial(wal_gone, which=slice(0, 2))),
    Damage("the WAL is gone", Code.WAL_MISSING, whole_wal_gone),
    Damage("the end of the WAL is gone", Code.WAL_ENDS_EARLY, partial(wal_gone, which=slice(1, None))),
    Damage("a bit of a WAL file", Code.CHECKSUM, wal_flipped),
    Damage("a WAL file is a stump", Code.OBJECT_SIZE, wal_stump),
    Damage("a WAL file of a zombie", Code.WAL_ORDER, wal_of_a_zombie),
    Damage("replay passes over rows of the WAL", Code.WAL_UNREPLAYED, wal_passed_over, depth=VerifyDepth.CHECKSUMS),
    Damage("L0s are in no tree", Code.L0_VANISHED, tree(lambda it: replace(it, l0=()))),
    Damage("rows of a commit are not in order", Code.ROW_ORDER, wal_rows_swapped),
    Damage("an old manifest is nonsense", Code.UNDECODABLE, old_manifest),
    Damage("the newest manifest is cut", Code.UNDECODABLE, newest_manifest),
    Damage("a checkpoint's manifest is gone", Code.CHECKPOINT_LOST, checkpointed_manifest_gone),
    Damage("a manifest is gone", Code.VERSION_GAP, manifest_gap),
    Damage("a boundary is nonsense", Code.BOUNDARY, partial(boundary, data=b"many")),
    Damage("a boundary hides the newest manifest", Code.BOUNDARY, boundary_at_the_newest),
    Damage("a boundary hides all compactions", Code.BOUNDARY, partial(boundary, data=b"9", resource="compactions")),
    Damage("a name that SlateDB reads", Code.FOREIGN_NAME, foreign_name),
    Damage("an epoch goes back", Code.VERSION_STEP, changed(writer_epoch=Epoch(0))),
    Damage("the log goes back", Code.INVARIANT, changed(next_wal_sst_id=WalId(1))),
    Damage("runs do not descend", Code.INVARIANT, tree(_run_twice)),
    Damage("a run overlaps", Code.RUN_OVERLAP, tree(_run_overlaps)),
    Damage("L0s are not in order", Code.L0_ORDER, tree(lambda it: replace(it, l0=it.l0[::-1]))),
    Damage("an L0 is there twice", Code.L0_DUPLICATE, tree(lambda it: replace(it, l0=(it.l0[0], *it.l0)))),
    Damage(
        "a listed L0 counts as compacted",
        Code.WATERMARK,
        tree(lambda it: replace(it, last_compacted_l0_sst_view_id=it.l0[1].id)),
    ),
    Damage("a view shows nothing", Code.UNDECODABLE, tree(seen_as(NONSENSE_RANGE))),
    Damage("a view begins after a key", Code.UNDECODABLE, tree(seen_as(KeyRange(excluded(b"bbb"), UNBOUNDED)))),
    Damage("keys without a segment", Code.SEGMENT_ROWS, changed(segment_extractor_name="first-byte")),
    Damage("times of sequence numbers", Code.SEQUENCE_TRACKER, changed(sequence_tracker=TRACKER)),
    Damage("manifests disagree", Code.SST_DISAGREEMENT, disagreement),
    Damage("a checkpoint is there twice", Code.CHECKPOINT_DUPLICATE, checkpoints(_twice)),
    Damage("a checkpoint of the future", Code.CHECKPOINT_AHEAD, checkpoints(_ahead)),
    Damage("compactions are nonsense", Code.UNDECODABLE, compactions_nonsense),
    Damage("a compaction without a worker", Code.COMPACTION_ENTRY, compaction(job(worker=None))),
    Damage("a compaction of half of the keys", Code.COMPACTION_ENTRY, compaction(_half())),
    Damage("an output is gone", Code.COMPACTION_OUTPUT, output_gone),
    Damage("an epoch that was never assigned", Code.EPOCH_AHEAD, compaction(job(), epoch=9)),
    Damage("a parent is gone", Code.PARENT_MISSING, parent_gone, path=CLONE),
    Damage("a pin is gone", Code.PIN_MISSING, pin_gone, path=CLONE),
    Damage("a pin ends", Code.PIN_EXPIRES, pin_ends, path=CLONE),
    Damage("an SST of two databases", Code.SST_COLLISION, collision, path=CLONE),
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_it_is_found(damage: Damage) -> None:
    async def main() -> None:
        harness = await Harness.build()
        place = await damage.do(harness)
        depths = list(VerifyDepth)
        for depth in depths[depths.index(damage.depth) :]:
            report = await harness.verify(damage.path, depth=depth)
            found = {(finding.object, finding.code) for finding in report.findings}
            assert (place, damage.code) in found, (depth, report.findings)

    anyio.run(main)


@pytest.mark.parametrize("depth", VerifyDepth)
def test_a_sound_database_has_no_findings(depth: VerifyDepth) -> None:
    async def main() -> None:
        harness = await Harness.build()
        for path in (PATH, CLONE):
            report = await harness.verify(path, depth=depth)
            assert (report.findings, report.is_complete, report.remarks) == ((), True, ())
            assert report.ssts == 5
            assert bool(report.rows) is (depth is VerifyDepth.DEEP)
            assert (report.rows is None) is (depth is not VerifyDepth.DEEP)
            assert bool(report.blocks) is (depth is not VerifyDepth.QUICK)
        assert report.borrowed[0].path == PATH
        assert report.borrowed[0].ssts == 5

    anyio.run(main)


def test_every_code_is_played_and_explained() -> None:
    assert set(MEANINGS) == set(Code)
    # ``encrypted`` needs a key: test_healthy.py.
    assert {damage.code for damage in DAMAGES} == set(Code) - {Code.ENCRYPTED}
    assert len(DAMAGES) >= 30
    assert {code.severity for code in Code} == set(Severity)


def test_the_page_lists_every_code() -> None:
    page = " ".join((REPOSITORY / "docs/how-to/verify.md").read_text().split())
    for code in Code:
        assert f"- `{code.value}` ({code.severity.value}): {MEANINGS[code]}" in page
