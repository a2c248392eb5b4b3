"""Union: combine manifests with disjoint keys into one, the inverse of projection.

Source: docs/reference/protocol.md 11.2.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from shale.clones.clone_manifest import NewUuid, Source, borrowings, require_one_place
from shale.clones.promote_l0 import duplicated, runs_of
from shale.clones.ranges import are_adjacent, hull_of_views, start_order
from shale.clones.view_merging import merged_l0, merged_run
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidUnion, InvalidUnionSetEmpty
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import ExternalDb, KeyRange, Manifest, RunId, Segment, Seq, SortedRun, SstView, Tree, Ulid

_SIMILAR_FACTOR = 4
"""Two runs are merged if neither is larger than the other by more than this factor."""


def united_tree(trees: Sequence[Tree], *, compact: bool = False) -> Tree:
    """Return one tree with all views of ``trees``, which are given in key order.

    L0s are interleaved by the time of their SSTs, which keeps the order within each tree.  The list must not have a
    view or an SST twice.  If it would, adjacent views of one SST are merged; if duplicates remain, all L0s become runs
    before those of their own tree.

    Args:
        compact: merge adjacent views and similar runs even if not required.
    """
    interleaved = Tree(l0=tuple(heapq.merge(*(tree.l0 for tree in trees), key=_age)))
    merged = merged_l0([tree.l0 for tree in trees]) if compact or duplicated(interleaved) else None
    l0 = interleaved if merged is None else Tree(l0=merged)
    if duplicated(l0):
        return Tree(compacted=_united_runs([_promoted(tree) for tree in trees], compact=compact))
    return replace(l0, compacted=_united_runs([tree.compacted for tree in trees], compact=compact))


def _age(view: SstView) -> int:
    return -view.sst.id.ms


def _promoted(tree: Tree) -> tuple[SortedRun, ...]:
    return (*runs_of(tree.l0, 0), *tree.compacted)


def _united_runs(parts: Sequence[Sequence[SortedRun]], *, compact: bool) -> tuple[SortedRun, ...]:
    if not compact:
        return tuple(run for runs in parts for run in runs)
    united: Sequence[SortedRun] = ()
    for runs in parts:
        united = _zipped(united, runs)
    return tuple(united)


def _zipped(left: Sequence[SortedRun], right: Sequence[SortedRun]) -> list[SortedRun]:
    """Merge two lists of runs, similar runs into one; the order within each list is kept."""
    united: list[SortedRun] = []
    old, new = len(left) - 1, len(right) - 1
    while old >= 0 and new >= 0:
        one, other = left[old].estimated_size_bytes, right[new].estimated_size_bytes
        if max(one, other) <= _SIMILAR_FACTOR * min(one, other):
            united.append(_joined(left[old], right[new]))
            old, new = old - 1, new - 1
        elif one > other:
            united.append(left[old])
            old -= 1
        else:
            united.append(right[new])
            new -= 1
    rest = [*left[: old + 1], *right[: new + 1]]
    return [*rest, *reversed(united)]


def _joined(left: SortedRun, right: SortedRun) -> SortedRun:
    views: tuple[SstView, ...] = merged_run((*left.ssts, *right.ssts))
    return replace(left, ssts=views)


log = get_logger("clones")


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one source in one tree."""

    keys: KeyRange
    path: str
    tree: Tree


def unite(sources: Sequence[Source], new_uuid: NewUuid, *, allow_gaps: bool = False, compact: bool = False) -> Manifest:
    """Return version 1 of a clone of several sources: their trees in a new database.

    Args:
        allow_gaps: the requested key ranges need not be adjacent.
        compact: merge views of one SST and runs of similar size even if not required.

    Raises:
        InvalidUnion: overlapping keys, different segment extractors, gaps, or one SST id in two databases.
        InvalidDbState: a source borrows SSTs without a checkpoint that pins them.
    """
    if not sources:
        raise InvalidUnionSetEmpty("a union needs sources")
    name = _extractor_of(sources)
    if not allow_gaps:
        _require_adjacent(sources)
    contributing = _in_key_order(sources)
    united = Manifest(
        initialized=False,
        segment_extractor_name=name,
        tree=Tree() if name is not None else _root_tree(contributing, compact=compact),
        segments=() if name is None else _segments(contributing, compact=compact),
        last_l0_seq=Seq(max(source.manifest.last_l0_seq for source in sources)),
        external_dbs=_external_dbs(contributing, new_uuid),
    )
    assert not any(duplicated(each) for _, each in united.trees()), "duplicate L0s must never be written"
    return _renumbered(united)


def _extractor_of(sources: Sequence[Source]) -> str | None:
    names = {source.manifest.segment_extractor_name for source in sources}
    if len(names) > 1:
        raise InvalidUnion(f"the sources have different segment extractors: {sorted(map(str, names))}")
    return names.pop()


def _require_adjacent(sources: Sequence[Source]) -> None:
    named = [source.named_range for source in sources if source.named_range is not None]
    if len(named) < len(sources):
        return
    named.sort(key=start_order)
    for left, right in pairwise(named):
        if not are_adjacent(left, right):
            raise InvalidUnion(f"{_shown(left)} and {_shown(right)} are not adjacent; allow gaps if that is meant")


def _in_key_order(sources: Sequence[Source]) -> list[Source]:
    """Return the non-empty sources in the order of their first key."""
    found: list[tuple[bytes, Source]] = []
    for source in sources:
        keys = hull_of_views(source.manifest.views())
        if keys is None:
            log.warning(Event.CLONE_SOURCE_SKIPPED, path=source.path)
        else:
            found.append((start_order(keys), source))
    return [source for _, source in sorted(found, key=lambda entry: entry[0])]


def _root_tree(sources: Sequence[Source], *, compact: bool) -> Tree:
    for source in sources:
        if source.manifest.segments:
            raise InvalidUnion(f"{source.path} has segments, but no extractor that knows them")
    return _united([_part(source, source.manifest.tree) for source in sources], "", compact=compact)


def _segments(sources: Sequence[Source], *, compact: bool) -> tuple[Segment, ...]:
    by_prefix: dict[bytes, list[_Part | None]] = {}
    for source in sources:
        if not source.manifest.tree.is_empty:
            raise InvalidUnion(f"{source.path} has a segment extractor, and rows outside of every segment")
        for segment in source.manifest.segments:
            by_prefix.setdefault(segment.prefix, []).append(_part(source, segment.tree))
    prefixes = sorted(by_prefix)
    for shorter, longer in pairwise(prefixes):
        if longer.startswith(shorter):
            raise InvalidUnion(f"segment {longer.hex()} lies inside segment {shorter.hex()}")
    united = [
        Segment(prefix=prefix, tree=_united(by_prefix[prefix], f" in segment {prefix.hex()}", compact=compact))
        for prefix in prefixes
    ]
    return tuple(segment for segment in united if not segment.tree.is_empty)


def _part(source: Source, tree: Tree) -> _Part | None:
    keys = hull_of_views(tree.views())
    return None if keys is None else _Part(keys, source.path, tree)


def _united(parts: Sequence[_Part | None], where: str, *, compact: bool) -> Tree:
    shown = sorted((part for part in parts if part is not None), key=lambda part: start_order(part.keys))
    for left, right in pairwise(shown):
        if not left.keys.intersect(right.keys).is_empty:
            raise InvalidUnion(
                f"the keys of {left.path} and {right.path} overlap{where}: {_shown(left.keys)}, {_shown(right.keys)}"
            )
    return united_tree([part.tree for part in shown], compact=compact)


def _renumbered(manifest: Manifest) -> Manifest:
    """Give all runs ids that are unique over all trees and descend in each tree."""
    next_id = sum(len(tree.compacted) for _, tree in manifest.trees())

    def renumbered(tree: Tree) -> Tree:
        nonlocal next_id
        runs = []
        for run in tree.compacted:
            next_id -= 1
            runs.append(SortedRun(id=RunId(next_id), ssts=run.ssts))
        return replace(tree, compacted=tuple(runs))

    return replace(
        manifest,
        tree=renumbered(manifest.tree),
        segments=tuple(Segment(prefix=segment.prefix, tree=renumbered(segment.tree)) for segment in manifest.segments),
    )


def _external_dbs(sources: Sequence[Source], new_uuid: NewUuid) -> tuple[ExternalDb, ...]:
    """Return one entry for each set of SSTs of each database, over all sources.

    A proper subset of another set of the same database needs no entry: that set pins its SSTs.  So the number of
    entries stays below the number of SSTs, however often a database is split and united.
    """
    collected = [entry for source in sources for entry in borrowings(source)]
    require_one_place(collected)
    named = {(source.path, source.checkpoint_id) for source in sources}
    chosen: dict[tuple[str, tuple[Ulid, ...]], UUID] = {}
    for entry in collected:
        key = (entry.path, tuple(sorted(set(entry.sst_ids))))
        known = chosen.get(key)
        if known is None or _preferred(entry, named) < ((entry.path, known) not in named, known):
            chosen[key] = entry.source_checkpoint_id
    of_path: dict[str, list[frozenset[Ulid]]] = {}
    for path, sst_ids in chosen:
        of_path.setdefault(path, []).append(frozenset(sst_ids))
    return tuple(
        ExternalDb(
            path=path, source_checkpoint_id=chosen[path, sst_ids], final_checkpoint_id=new_uuid(), sst_ids=sst_ids
        )
        for path, sst_ids in sorted(chosen)
        if (path, chosen[path, sst_ids]) in named or not _is_part_of_another(frozenset(sst_ids), of_path[path])
    )


def _is_part_of_another(own: frozenset[Ulid], sets: Iterable[frozenset[Ulid]]) -> bool:
    return any(own < other for other in sets)


def _preferred(entry: ExternalDb, named: set[tuple[str, UUID]]) -> tuple[bool, UUID]:
    """Sort key that prefers checkpoints of the request, so that a second attempt recognizes the first."""
    return (entry.path, entry.source_checkpoint_id) not in named, entry.source_checkpoint_id


def _shown(keys: KeyRange) -> str:
    first, end = keys.first_key, keys.end_key
    return f"{'' if first is None else first!r}..{'' if end is None else end!r}"
