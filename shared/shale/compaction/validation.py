"""The rules V1–V13 that a compaction must keep to lose no row (docs/protocol.md 6.5).

They are checked twice: before a submitted compaction is scheduled, whoever submitted it, and again before its result
is committed, because the tree may have changed meanwhile.
"""

from collections.abc import Iterable, Iterator
from enum import Enum

from shale.compaction.specs import (
    L0Source,
    Source,
    destination_of,
    has_duplicate_l0,
    max_run_id,
    next_run_id,
    order_of,
    sources_of,
    touched_by,
)
from shale.errors import InvalidCompaction
from shale.types import (
    Compaction,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    DrainSpec,
    Manifest,
    TieredSpec,
    Tree,
)


class Stage(Enum):
    """When a check runs: before scheduling (a), before the commit (b), or when another coordinator scheduled it.

    ``INHERITED`` is (a) with V5 of (b): since the job was scheduled, runs of other trees may have risen above it.
    """

    SUBMITTED = "a"
    INHERITED = "inherited"
    COMPACTED = "b"


_CLAIMED = (CompactionStatus.SCHEDULED, CompactionStatus.RUNNING)
_PLANNED = (*_CLAIMED, CompactionStatus.COMPACTED)


def validate(manifest: Manifest, compactions: Compactions, entry: Compaction, stage: Stage) -> None:
    """Check one entry against the current state; the entry itself is never its own competitor.

    Raises:
        InvalidCompaction: names the first rule that is broken.
    """
    spec = entry.spec
    if not sources_of(spec):
        raise InvalidCompaction("V1", "a compaction needs sources")
    if isinstance(spec, DrainSpec) and not spec.segment:
        raise InvalidCompaction("V2", "the root tree cannot be drained")
    tree = check_sources_exist(manifest, spec)
    others = [other for other in compactions.entries if other.id != entry.id]
    if isinstance(spec, TieredSpec):
        _check_destination(manifest, tree, spec, stage)
        _check_order(tree, spec)
    else:
        _check_drain(tree, spec)
    _check_competitors(spec, others, stage)


def check_sources_exist(manifest: Manifest, spec: CompactionSpec) -> Tree:
    """V3 and V4: the tree and every source are there.

    Raises:
        InvalidCompaction: they are not.
    """
    tree = manifest.tree_of(spec.segment)
    if tree is None:
        raise InvalidCompaction("V3", f"segment {spec.segment!r} does not exist")
    present = frozenset(order_of(spec.segment, tree))
    missing = [source for source in sources_of(spec) if source not in present]
    if missing:
        raise InvalidCompaction("V4", f"sources that do not exist: {_names(missing)}")
    return tree


def check_proposal(compactions: Compactions, spec: CompactionSpec) -> None:
    """The extra conflicts of specs that a coordinator proposes itself.

    Raises:
        InvalidCompaction: an active compaction has the same destination, or drains the same segment.
    """
    active = [entry.spec for entry in compactions.entries if entry.is_active]
    destination = destination_of(spec)
    if destination is not None and any(destination_of(other) == destination for other in active):
        raise InvalidCompaction("V12", f"run {destination} is being written already")
    if isinstance(spec, DrainSpec):
        drains = [other for other in active if isinstance(other, DrainSpec)]
        if any(other.segment == spec.segment for other in drains):
            raise InvalidCompaction("V12", "the segment is being drained already")


def _check_destination(manifest: Manifest, tree: Tree, spec: TieredSpec, stage: Stage) -> None:
    if not spec.sorted_runs:
        newest = max_run_id(tree)
        in_tree = 0 if newest is None else newest + 1
        lowest = next_run_id(manifest) if stage is Stage.SUBMITTED else in_tree
        if spec.destination < lowest:
            raise InvalidCompaction("V5", f"destination {spec.destination} must be at least {lowest}")
    exists = any(run.id == spec.destination for _, other in manifest.trees() for run in other.compacted)
    if exists and spec.destination not in spec.sorted_runs:
        raise InvalidCompaction("V6", f"run {spec.destination} exists and is not a source")
    if spec.sorted_runs and spec.destination != min(spec.sorted_runs):
        raise InvalidCompaction("V11", f"destination {spec.destination} is not the oldest source run")


def _check_order(tree: Tree, spec: TieredSpec) -> None:
    _check_l0(tree, spec)
    order, sources = order_of(spec.segment, tree), sources_of(spec)
    start = order.index(sources[0])
    if order[start : start + len(sources)] != sources:
        raise InvalidCompaction("V10", "sources are not consecutive from newest to oldest")


def _check_l0(tree: Tree, spec: TieredSpec) -> None:
    if not spec.l0_view_ids:
        return
    if has_duplicate_l0(tree):
        raise InvalidCompaction("V13", "the tree lists an L0 twice, as only a union does; lift it first")
    oldest = tuple(view.id for view in tree.l0[-len(spec.l0_view_ids) :])
    if oldest != spec.l0_view_ids:
        # Everything behind the newest consumed L0 falls under the watermark, so a gap would lose its rows.
        raise InvalidCompaction("V7", "L0 sources are not the oldest L0s of the tree")


def _check_drain(tree: Tree, spec: DrainSpec) -> None:
    if spec.l0_view_ids and has_duplicate_l0(tree):
        raise InvalidCompaction("V13", "the tree lists an L0 twice, as only a union does; lift it first")
    order, drained = order_of(spec.segment, tree), frozenset(sources_of(spec))
    if frozenset(order[-len(drained) :]) != drained:
        raise InvalidCompaction("V8", "a drain must take everything at and behind its newest source")


def _check_competitors(spec: CompactionSpec, others: Iterable[Compaction], stage: Stage) -> None:
    others = list(others)
    if spec.l0_view_ids and any(other.spec.l0_view_ids for other in _in_segment(spec, others)):
        raise InvalidCompaction("V9", "another compaction of L0s of this tree is scheduled or running")
    if stage is Stage.COMPACTED:
        return  # The sweep after each commit (6.10) takes the place of V12 here.
    own = touched_by(spec)
    for other in others:
        if other.status in _PLANNED and own & touched_by(other.spec):
            raise InvalidCompaction("V12", f"sources or destination belong to compaction {other.id}")


def _in_segment(spec: CompactionSpec, others: Iterable[Compaction]) -> Iterator[Compaction]:
    return (other for other in others if other.status in _CLAIMED and other.spec.segment == spec.segment)


def _names(sources: Iterable[Source]) -> str:
    return ", ".join(
        str(source.view_id) if isinstance(source, L0Source) else f"SR{source.run_id}" for source in sources
    )
