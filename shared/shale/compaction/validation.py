"""The rules V1–V13, without which a compaction could lose rows (docs/reference/protocol.md 6.5).

They are checked twice: before a compaction is scheduled, and again before its result is committed, because the tree
may have changed meanwhile.
"""

from collections.abc import Collection, Sequence
from enum import Enum

from shale.compaction.specs import (
    L0Source,
    Source,
    destination_of,
    exclude_each_other,
    has_duplicate_l0,
    max_run_id,
    name_of_segment,
    names_of,
    next_run_id,
    order_of,
    sources_of,
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


class ValidationStage(Enum):
    """When a check runs: before scheduling (a), before the commit (b), or for a job that another coordinator scheduled.

    ``INHERITED`` is (a) with V5 of (b): since the job was scheduled, other trees may have got higher run ids.
    """

    SUBMITTED = "a"
    INHERITED = "inherited"
    COMPACTED = "b"


_CLAIMED = (CompactionStatus.SCHEDULED, CompactionStatus.RUNNING)
_PLANNED = (*_CLAIMED, CompactionStatus.COMPACTED)

FRESH_RUN_ID_MAX = 2**31
_FRESH_STEP_MAX = 2**16
"""How far above existing runs a new id may be beyond ``FRESH_RUN_ID_MAX``, so that compaction can continue there."""

_RUN_ID_MAX = 2**32 - 1


def validate(manifest: Manifest, compactions: Compactions, entry: Compaction, stage: ValidationStage) -> None:
    """Check one entry against the current state; its own stored copy is ignored.

    Raises:
        InvalidCompaction: names the first broken rule.
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
    """Check V3 and V4: the tree and all sources exist.

    Raises:
        InvalidCompaction: names the broken rule.
    """
    tree = manifest.tree_of(spec.segment)
    if tree is None:
        raise InvalidCompaction("V3", f"segment {name_of_segment(spec.segment)} does not exist")
    present = frozenset(order_of(spec.segment, tree))
    missing = [source for source in sources_of(spec) if source not in present]
    if missing:
        raise InvalidCompaction("V4", f"sources that do not exist: {names_of(missing)}")
    return tree


def check_proposal(compactions: Compactions, spec: CompactionSpec) -> None:
    """Check the additional conflicts of a scheduler's proposal.

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


def _check_destination(manifest: Manifest, tree: Tree, spec: TieredSpec, stage: ValidationStage) -> None:
    if not spec.sorted_runs:
        newest = max_run_id(tree)
        in_tree = 0 if newest is None else newest + 1
        lowest = next_run_id(manifest) if stage is ValidationStage.SUBMITTED else in_tree
        if spec.destination < lowest:
            raise InvalidCompaction("V5", f"destination {spec.destination} must be at least {lowest}")
        # Ids have 32 bits and each new run gets a higher one, so one request could exhaust them.
        highest = min(max(FRESH_RUN_ID_MAX, lowest + _FRESH_STEP_MAX), _RUN_ID_MAX)
        if stage is ValidationStage.SUBMITTED and spec.destination > highest:
            raise InvalidCompaction("V5", f"destination {spec.destination} must be at most {highest}")
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
        between = _left_out(order[start : 1 + max(order.index(source) for source in sources)], sources)
        fault = f"leave out {between}, which is between them" if between else "are not in order, newest first"
        raise InvalidCompaction("V10", f"the sources {fault}")


def _check_l0(tree: Tree, spec: TieredSpec) -> None:
    if not spec.l0_view_ids:
        return
    _check_no_duplicates(tree)
    oldest = tuple(view.id for view in tree.l0[-len(spec.l0_view_ids) :])
    if oldest != spec.l0_view_ids:
        # All L0s older than the newest source fall under the watermark, so a skipped one would lose its rows.
        taken = [L0Source(spec.segment, view_id) for view_id in spec.l0_view_ids]
        order = order_of(spec.segment, tree)[: len(tree.l0)]
        left_out = _left_out(order[min(order.index(source) for source in taken) :], taken)
        fault = f"the older {left_out} is not among them" if left_out else "they are not in order, newest first"
        raise InvalidCompaction("V7", f"L0 sources must be the oldest L0s of the tree: {fault}")


def _check_drain(tree: Tree, spec: DrainSpec) -> None:
    if spec.l0_view_ids:
        _check_no_duplicates(tree)
    order, drained = order_of(spec.segment, tree), sources_of(spec)
    left_out = _left_out(order[min(order.index(source) for source in drained) :], drained)
    if left_out:
        # Rows older than a drained tombstone would become visible again.
        raise InvalidCompaction(
            "V8", f"a drain must include everything older than its newest source: {left_out} would stay"
        )


def _check_no_duplicates(tree: Tree) -> None:
    if has_duplicate_l0(tree):
        raise InvalidCompaction(
            "V13", "the tree lists an L0 twice, as only a union does; its L0s must be promoted first"
        )


def _left_out(order: Sequence[Source], sources: Collection[Source]) -> str:
    """Return the names of the entries of ``order`` that are not sources."""
    return names_of([source for source in order if source not in sources])


def _check_competitors(spec: CompactionSpec, others: Sequence[Compaction], stage: ValidationStage) -> None:
    if spec.l0_view_ids:
        for other in others:
            if other.spec.l0_view_ids and other.status in _CLAIMED and other.spec.segment == spec.segment:
                raise InvalidCompaction("V9", f"compaction {other.id} has L0s of this tree already")
    if stage is ValidationStage.COMPACTED:
        return  # The sweep after each commit (6.10) takes the place of V12 here.
    for other in others:
        if other.status in _PLANNED and exclude_each_other(spec, other.spec):
            raise InvalidCompaction("V12", f"sources or destination belong to compaction {other.id}")
