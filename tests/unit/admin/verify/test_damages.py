"""What can be wrong with a database, one thing at a time: each is found, under its code, at the object at fault."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import numpy as np
import pytest

from shale.format.boundary import encode_boundary
from shale.format.names import manifest_key, manifest_prefix, sst_key, wal_key, wal_prefix
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import release_checkpoints
from shale.sst.verify.codes import MEANINGS, Code, Severity
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
from tests.unit.admin.verify.house import CLONE, NAMED, OLD_MS, PATH, House
from tests.unit.sst.verify.test_sst import SOUND, Forge, row

Break = Callable[[House], Awaitable[str]]


@dataclass(frozen=True)
class Damage:
    """``do`` breaks something and returns the key at which it has to be found."""

    name: str
    code: Code
    do: Break
    path: str = PATH
    deep: bool = False


async def sst_gone(house: House) -> str:
    return await house.gone(sst_key(PATH, (await house.run_sst()).id))


async def sst_cut(house: House, size: int) -> str:
    return await house.edit(sst_key(PATH, (await house.run_sst()).id), lambda data: data[:size])


async def sst_flipped(house: House, part: str) -> str:
    sst = await house.run_sst()
    place = {
        "block": 5,
        "filter": sst.info.filter_offset + 1,
        "index": sst.info.index_offset + 1,
        "stats": sst.info.stats_offset + 1,
        "footer": sst.info.sections_end + 20,
    }
    return await house.flip(sst_key(PATH, sst.id), place[part])


async def sst_of_others(house: House) -> str:
    other = await house.sst(b"zz", OLD_MS + 5)
    got = await house.store.get(sst_key(PATH, other.id))
    assert got is not None
    await house.store.delete(sst_key(PATH, other.id))
    return await house.edit(sst_key(PATH, (await house.run_sst()).id), lambda _: bytes(got.data))


async def forged(house: House, change: Callable[[Forge], None]) -> str:
    """In front of the run of the database stands another one that a wrong writer has made."""
    blocks = [[row(b"%02d" % number) for number in range(20)]] if change is _wrong_table else SOUND
    forge = Forge([list(block) for block in blocks])
    change(forge)
    data, info = forge.write()
    sst = await house.put_sst(data, Sst(id=Ulid.from_parts(OLD_MS + 7, 9), info=info))
    run = SortedRun(id=RunId(9), ssts=(SstView.identity(sst),))
    await house.rewrite_tree(lambda tree: replace(tree, compacted=(run, *tree.compacted)))
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
    forge.gap = b"nobody's"


def _last_key(forge: Forge) -> None:
    forge.last_entry = b"x"


def _wrong_table(forge: Forge) -> None:
    forge.edit_image = lambda image: image[:-4] + b"\x00\x01" + image[-2:]


async def wal_gone(house: House, which: slice) -> str:
    keys = (await house.needed_wal())[which]
    for key in keys:
        await house.store.delete(key)
    return keys[0]


async def whole_wal_gone(house: House) -> str:
    for meta in await house.store.list(wal_prefix(PATH)):
        await house.store.delete(meta.key)
    return wal_key(PATH, (await house.latest())[1].replay_after_wal_id + 1)


async def wal_flipped(house: House) -> str:
    return await house.flip((await house.needed_wal())[0], 3)


async def wal_stump(house: House) -> str:
    return await house.edit((await house.needed_wal())[0], lambda _: b"stump")


async def wal_of_a_zombie(house: House) -> str:
    key = (await house.needed_wal())[-1]
    return await house.edit(key, lambda _: bytes(build_wal_sst(rows_from_entries([row(b"z", 2)]), Compression.NONE)))


async def wal_rows_swapped(house: House) -> str:
    rows = [Entry(b"z", b"", 900, 0), Entry(b"y", b"", 900, 0)]
    key = (await house.needed_wal())[-1]
    return await house.edit(key, lambda _: bytes(build_wal_sst(rows_from_entries(rows), Compression.NONE)))


async def old_manifest(house: House) -> str:
    return await house.edit(manifest_key(PATH, 3), lambda _: b"\x00\x02 nonsense")


async def newest_manifest(house: House) -> str:
    return await house.edit(manifest_key(PATH, (await house.latest())[0]), lambda data: data[: len(data) // 2])


async def checkpointed_manifest_gone(house: House) -> str:
    return await house.gone(manifest_key(PATH, (await house.latest())[1].checkpoints[0].manifest_id))


async def manifest_gap(house: House) -> str:
    await house.store.put(house.boundary(), encode_boundary(1))
    return await house.gone(manifest_key(PATH, 3))


async def boundary(house: House, data: bytes, resource: str = "manifest") -> str:
    await house.store.put(house.boundary(resource), data)
    return house.boundary(resource)


async def boundary_at_the_newest(house: House) -> str:
    return await boundary(house, encode_boundary((await house.latest())[0]))


async def foreign_name(house: House) -> str:
    key = f"{manifest_prefix(PATH)}7.manifest"
    await house.store.put(key, b"")
    return key


def changed(**fields: object) -> Break:
    """Fields of the newest manifest."""

    async def do(house: House) -> str:
        return await house.rewrite(lambda manifest: replace(manifest, **fields))  # type: ignore[arg-type]

    return do


def tree(change: Callable[[Tree], Tree]) -> Break:
    """The tree of the newest manifest."""

    async def do(house: House) -> str:
        return await house.rewrite_tree(change)

    return do


def checkpoints(change: Callable[[Manifest], Manifest]) -> Break:
    async def do(house: House) -> str:
        return await house.rewrite(change)

    return do


def _twice(manifest: Manifest) -> Manifest:
    return replace(manifest, checkpoints=(*manifest.checkpoints, manifest.checkpoints[0]))


def _ahead(manifest: Manifest) -> Manifest:
    ahead = replace(manifest.checkpoints[0], id=NAMED, manifest_id=ManifestId(999))
    return replace(manifest, checkpoints=(*manifest.checkpoints, ahead))


def seen_as(visible: KeyRange) -> Callable[[Tree], Tree]:
    return lambda before: replace(before, l0=(replace(before.l0[0], visible_range=visible), *before.l0[1:]))


def _run_twice(before: Tree) -> Tree:
    """Runs do not descend."""
    (run,) = before.compacted
    left, right = (SortedRun(id=RunId(number), ssts=(view,)) for number, view in enumerate(run.ssts))
    return replace(before, compacted=(left, right))


def _run_overlaps(before: Tree) -> Tree:
    (run,) = before.compacted
    return replace(before, compacted=(replace(run, ssts=run.ssts[::-1]),))


async def disagreement(house: House) -> str:
    """The version of a checkpoint says something else of an SST."""
    _, latest = await house.latest()
    sst = latest.tree.l0[-1].sst
    other = replace(sst, info=replace(sst.info, last_entry=b"zzzzzz"))

    def change(manifest: Manifest) -> Manifest:
        l0 = tuple(SstView.identity(other) if view.sst.id == sst.id else view for view in manifest.tree.l0)
        return replace(manifest, tree=replace(manifest.tree, l0=l0))

    await house.rewrite(change, version=latest.checkpoints[-1].manifest_id)
    return sst_key(PATH, sst.id)


async def lost_sequence(house: House) -> str:
    """No manifest knows of the rows of the newest L0."""
    latest_id, latest = await house.latest()
    for version in range(1, latest_id + 1):
        await house.rewrite(lambda manifest: replace(manifest, last_l0_seq=Seq(1)), version=version)
    return sst_key(PATH, latest.tree.l0[0].sst.id)


def job(**fields: object) -> Compaction:
    fields = {"status": CompactionStatus.RUNNING, "worker": WorkerClaim(worker_id="w", last_heartbeat_ms=1), **fields}
    return Compaction(id=Ulid.from_parts(OLD_MS + 99, 1), spec=TieredSpec(destination=RunId(0)), **fields)  # type: ignore[arg-type]


def compaction(entry: Compaction, *, epoch: int = 0) -> Break:
    async def do(house: House) -> str:
        return await house.compacting(entry, epoch=epoch)

    return do


LOST = Sst(id=Ulid.from_parts(OLD_MS + 100, 3), info=SstInfo(index_len=4))


async def output_gone(house: House) -> str:
    part = Subcompaction(range=KeyRange(), output_ssts=(LOST,))
    await house.compacting(job(ctx=CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0))))
    return sst_key(PATH, LOST.id)


def _half() -> Compaction:
    part = Subcompaction(range=KeyRange.half_open(None, b"m"))
    return job(ctx=CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0)))


async def compactions_nonsense(house: House) -> str:
    return await house.edit("db/compactions/00000000000000000001.compactions", lambda _: b"\x00\x02 nonsense")


async def pin(house: House) -> tuple[str, object]:
    final = (await house.latest(CLONE))[1].external_dbs[0].final_checkpoint_id
    return manifest_prefix(PATH), final


async def pin_gone(house: House) -> str:
    where, final = await pin(house)
    await release_checkpoints(await house.manifests().load(), [final])  # type: ignore[list-item]
    return where


async def pin_ends(house: House) -> str:
    where, final = await pin(house)

    def change(manifest: Manifest) -> Manifest:
        ending = 2**32 - 1
        kept = (replace(each, expire_s=ending) if each.id == final else each for each in manifest.checkpoints)
        return replace(manifest, checkpoints=tuple(kept))

    await house.rewrite(change)
    return where


async def parent_gone(house: House) -> str:
    for meta in await house.store.list(manifest_prefix(PATH)):
        await house.store.delete(meta.key)
    return manifest_prefix(PATH)


async def collision(house: House) -> str:
    def change(manifest: Manifest) -> Manifest:
        (external,) = manifest.external_dbs
        other = ExternalDb(path="other", source_checkpoint_id=NAMED, final_checkpoint_id=None, sst_ids=external.sst_ids)
        return replace(manifest, external_dbs=(external, other))

    return await house.rewrite(change, CLONE)


NONSENSE_RANGE = KeyRange.half_open(b"zzzzz", None)
TRACKER = b"\x09" + bytes(12)

DAMAGES = (
    Damage("an SST is gone", Code.OBJECT_MISSING, sst_gone),
    Damage("an SST is gone that a clone borrows", Code.OBJECT_MISSING, sst_gone, path=CLONE),
    Damage("an SST ends in its data", Code.OBJECT_SIZE, partial(sst_cut, size=100)),
    Damage("an SST is empty", Code.OBJECT_SIZE, partial(sst_cut, size=0)),
    Damage("an SST lacks its last byte", Code.UNDECODABLE, partial(sst_cut, size=-1)),
    Damage("a bit of a block", Code.CHECKSUM, partial(sst_flipped, part="block"), deep=True),
    Damage("a bit of a filter", Code.CHECKSUM, partial(sst_flipped, part="filter")),
    Damage("a bit of an index", Code.CHECKSUM, partial(sst_flipped, part="index")),
    Damage("a bit of the stats", Code.CHECKSUM, partial(sst_flipped, part="stats")),
    Damage("a bit of a footer", Code.CHECKSUM, partial(sst_flipped, part="footer")),
    Damage("an SST is another one", Code.FOOTER_MISMATCH, sst_of_others),
    Damage("rows are not in order", Code.ROW_ORDER, partial(forged, change=_swapped), deep=True),
    Damage("a table of offsets leads elsewhere", Code.ROW_OFFSETS, partial(forged, change=_wrong_table), deep=True),
    Damage("a separator is above its block", Code.SEPARATOR, partial(forged, change=_separator), deep=True),
    Damage("separators are not in order", Code.SEPARATOR, partial(forged, change=_separators_swapped)),
    Damage("a filter denies a key", Code.FILTER_DENIES, partial(forged, change=_filter), deep=True),
    Damage("stats count wrongly", Code.STATS, partial(forged, change=_stats), deep=True),
    Damage("stats lack a block", Code.STATS, partial(forged, change=_few_stats)),
    Damage("bytes of nobody", Code.LAYOUT_GAP, partial(forged, change=_gap)),
    Damage("another last key", Code.KEY_RANGE, partial(forged, change=_last_key), deep=True),
    Damage("rows that no manifest knows of", Code.SEQ_ABOVE_MANIFEST, lost_sequence, deep=True),
    Damage("a WAL file is gone", Code.WAL_MISSING, partial(wal_gone, which=slice(1, 2))),
    Damage("WAL files are gone", Code.WAL_MISSING, partial(wal_gone, which=slice(0, 2))),
    Damage("the WAL is gone", Code.WAL_MISSING, whole_wal_gone),
    Damage("the end of the WAL is gone", Code.WAL_ENDS_EARLY, partial(wal_gone, which=slice(1, None))),
    Damage("a bit of a WAL file", Code.CHECKSUM, wal_flipped),
    Damage("a WAL file is a stump", Code.OBJECT_SIZE, wal_stump),
    Damage("a WAL file of a zombie", Code.WAL_ORDER, wal_of_a_zombie),
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
    Damage("a view begins behind a key", Code.UNDECODABLE, tree(seen_as(KeyRange(excluded(b"bbb"), UNBOUNDED)))),
    Damage("keys without a segment", Code.SEGMENT_ROWS, changed(segment_extractor_name="first-byte")),
    Damage("times of sequence numbers", Code.SEQUENCE_TRACKER, changed(sequence_tracker=TRACKER)),
    Damage("manifests disagree", Code.SST_DISAGREEMENT, disagreement),
    Damage("a checkpoint is there twice", Code.CHECKPOINT_DUPLICATE, checkpoints(_twice)),
    Damage("a checkpoint of the future", Code.CHECKPOINT_AHEAD, checkpoints(_ahead)),
    Damage("compactions are nonsense", Code.UNDECODABLE, compactions_nonsense),
    Damage("a compaction without a worker", Code.COMPACTION_ENTRY, compaction(job(worker=None))),
    Damage("a compaction of half of the keys", Code.COMPACTION_ENTRY, compaction(_half())),
    Damage("an output is gone", Code.COMPACTION_OUTPUT, output_gone),
    Damage("an epoch that nobody gave", Code.EPOCH_AHEAD, compaction(job(), epoch=9)),
    Damage("a parent is gone", Code.PARENT_MISSING, parent_gone, path=CLONE),
    Damage("a pin is gone", Code.PIN_MISSING, pin_gone, path=CLONE),
    Damage("a pin ends", Code.PIN_EXPIRES, pin_ends, path=CLONE),
    Damage("an SST of two databases", Code.SST_COLLISION, collision, path=CLONE),
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_it_is_found(damage: Damage) -> None:
    async def main() -> None:
        house = await House.build()
        place = await damage.do(house)
        report = await house.verify(damage.path, deep=damage.deep)
        found = {(finding.object, finding.code) for finding in report.findings}
        assert (place, damage.code) in found, report.findings
        # Whoever reads more finds it as well.
        assert (place, damage.code) in {
            (finding.object, finding.code) for finding in (await house.verify(damage.path, deep=True)).findings
        }

    anyio.run(main)


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_house(deep: bool) -> None:
    async def main() -> None:
        house = await House.build()
        for path in (PATH, CLONE):
            report = await house.verify(path, deep=deep)
            assert (report.findings, report.is_complete, report.remarks) == ((), True, ())
            assert report.ssts == 5
            assert bool(report.rows) or not deep
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
    page = (Path(__file__).parents[4] / "docs/verify.md").read_text()
    for code in Code:
        assert f"| `{code.value}` | {code.severity.value} | {MEANINGS[code]} |\n" in page
