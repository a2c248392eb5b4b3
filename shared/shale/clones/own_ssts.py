"""The SSTs that a clone has under its own path from the start: rows of a WAL, and copies of SSTs whose id is taken.

A union and a projection cannot take WAL files over: the files of several sources have the same ids, and a projected
clone must not replay rows outside of its range.  The rows become L0 SSTs of the clone instead.

Two sources may have different SSTs of one id.  The format resolves an id to one object, so all but one are copied under
ids of their own.  A new id follows the old one directly, which keeps the order by time.

Source: docs/reference/protocol.md 11.2, rule 7, and 11.3.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from shale.clones.clone_manifest import Source, places_of
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.wal_files import wal_range, without_wal
from shale.compaction.specs import with_tree
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.row_order import merged_parts
from shale.engine.wal.replay import ReplayedRows, replay_wal
from shale.env import Env
from shale.errors import InvalidCloneSourceWithWal
from shale.format.names import sst_key
from shale.kernels.rows import Rows
from shale.protocol.wal_store import WalStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.types import Compression, KeyRange, Manifest, Segment, Seq, SortedRun, Sst, SstView, Tree, Ulid

TABLE_BYTES = 64 << 20
"""Size of the rows of one SST."""
_COPIES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class BuiltSst:
    """An SST that is not stored yet."""

    id: Ulid
    data: bytes


async def with_wal_in_l0(
    wal: WalStore, manifest: Manifest, path: str, env: Env
) -> tuple[Manifest, tuple[BuiltSst, ...]]:
    """Return the manifest with an empty WAL range and the rows of its WAL in new L0s, and these L0s.

    Raises:
        InvalidCloneSourceWithWal: a row belongs to a segment that the manifest does not have yet.
        WalTruncated: a file of the range is gone.
        CorruptionError: a file cannot be decoded.
    """
    wal_ids = wal_range(manifest)
    built: list[BuiltSst] = []
    options = SstOptions(compression=_compression_of(manifest), transformer=wal.transformer)
    changed = without_wal(manifest)
    if not wal_ids:
        return changed, ()
    tables = replay_wal(
        wal, wal_ids[0], wal_ids[-1], min_seq=manifest.last_l0_seq, max_table_bytes=TABLE_BYTES, env=env
    )
    async for table in tables:
        if not table.row_count:
            continue
        for prefix, rows in _by_segment(manifest, merged_parts(table.parts), path):
            data, info = await env.cpu.run(partial(build_sst, rows, options))
            sst = Sst(id=env.ids.ulid(), info=info)
            built.append(BuiltSst(sst.id, data))
            changed = _with_l0(changed, prefix, sst)
        changed = _advanced(changed, table)
    return changed, tuple(built)


def _compression_of(manifest: Manifest) -> Compression:
    newest = max(manifest.ssts().values(), key=lambda sst: sst.id, default=None)
    return Compression.NONE if newest is None else newest.info.compression


def _by_segment(manifest: Manifest, rows: Rows, path: str) -> list[tuple[bytes, Rows]]:
    """Split sorted rows by the segments of a manifest."""
    if manifest.segment_extractor_name is None:
        return [(b"", rows)]
    parts = []
    for segment in manifest.segments:
        start, end = _place(rows, segment.prefix), _place(rows, KeyRange.with_prefix(segment.prefix).end_key)
        if end > start:
            parts.append((segment.prefix, rows.slice(start, end)))
    if sum(len(part) for _, part in parts) != len(rows):
        raise InvalidCloneSourceWithWal(
            f"the WAL of {path or '/'} holds rows of a segment that has no SST yet: flush the memtable of the "
            "database, or open and close it"
        )
    return parts


def _place(rows: Rows, key: bytes | None) -> int:
    return len(rows) if key is None else bisect_left(range(len(rows)), key, key=rows.key)


def _with_l0(manifest: Manifest, prefix: bytes, sst: Sst) -> Manifest:
    tree = manifest.tree_of(prefix)
    assert tree is not None, "rows are split by the segments of this manifest"
    return with_tree(manifest, prefix, replace(tree, l0=(SstView.identity(sst), *tree.l0)))


def _advanced(manifest: Manifest, table: ReplayedRows) -> Manifest:
    tick = manifest.last_l0_clock_tick if table.last_tick is None else table.last_tick
    return replace(
        manifest,
        last_l0_seq=Seq(max(manifest.last_l0_seq, table.last_seq)),
        last_l0_clock_tick=max(manifest.last_l0_clock_tick, tick),
    )


def with_distinct_ids(sources: Sequence[Source]) -> list[Source]:
    """Return the sources with new ids for SSTs that another source has under the same id at another path.

    The result depends on the sources only, so a second attempt copies to the same objects.
    """
    taken = {sst_id for source in sources for sst_id in source.manifest.ssts()}
    first_places: dict[Ulid, str] = {}
    changed: list[Source] = []
    for source in sources:
        new_ids: dict[Ulid, Ulid] = {}
        places = places_of(source)
        for sst_id, path in sorted(places.items()):
            if first_places.setdefault(sst_id, path) != path:
                fresh = _next_free(sst_id, taken)
                taken.add(fresh)
                new_ids[sst_id] = fresh
        changed.append(_renamed(source, places, new_ids) if new_ids else source)
    return changed


def _next_free(sst_id: Ulid, taken: set[Ulid]) -> Ulid:
    fresh = Ulid(sst_id + 1)
    while fresh in taken:
        fresh = Ulid(fresh + 1)
    return fresh


def _renamed(source: Source, places: Mapping[Ulid, str], new_ids: Mapping[Ulid, Ulid]) -> Source:
    def view(old: SstView) -> SstView:
        fresh = new_ids.get(old.sst.id)
        if fresh is None:
            return old
        return replace(old, id=fresh if old.id == old.sst.id else old.id, sst=replace(old.sst, id=fresh))

    def tree(old: Tree) -> Tree:
        runs = tuple(SortedRun(id=run.id, ssts=tuple(map(view, run.ssts))) for run in old.compacted)
        return replace(old, l0=tuple(map(view, old.l0)), compacted=runs)

    manifest = source.manifest
    entries = (
        replace(entry, sst_ids=tuple(sst_id for sst_id in entry.sst_ids if sst_id not in new_ids))
        for entry in manifest.external_dbs
    )
    renamed = replace(
        manifest,
        tree=tree(manifest.tree),
        segments=tuple(Segment(prefix=each.prefix, tree=tree(each.tree)) for each in manifest.segments),
        external_dbs=tuple(entries),
    )
    copies = {fresh: sst_key(places[old], old) for old, fresh in new_ids.items()}
    return replace(source, manifest=renamed, own={**source.own, **copies})


async def store_own_ssts(
    catalog: DatabaseCatalog, path: str, sources: Sequence[Source], built: Sequence[BuiltSst], clone: Manifest
) -> None:
    """Store the clone's own SSTs that its first manifest names; it is not written yet."""
    named = clone.ssts().keys()
    for sst in built:
        if sst.id in named:
            await catalog.store.put(sst_key(path, sst.id), sst.data)
    copies = [
        partial(catalog.store.copy, key, sst_key(path, sst_id))
        for source in sources
        for sst_id, key in source.own.items()
        if key and sst_id in named
    ]
    for start in range(0, len(copies), _COPIES_AT_ONCE):
        await gather(copies[start : start + _COPIES_AT_ONCE])
