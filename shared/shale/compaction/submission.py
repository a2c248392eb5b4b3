"""Validate a request before it is stored, instead of a later Failed entry (docs/reference/protocol.md
6.13).

The coordinator validates it again; only its decision is final.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shale.compaction.entries import with_entry
from shale.compaction.requests import CompactionRequest, resolve, segments_of
from shale.compaction.specs import describe, fresh_run_id, order_of, sources_of, touched_by
from shale.compaction.validation import ValidationStage, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionSpec, CompactionStatus, Manifest, Tree, Ulid

_NAMES_MAX = 8


def advice(rule: str, manifest: Manifest, compactions: Compactions, spec: CompactionSpec) -> str:
    """Return how to satisfy ``rule``; empty if the error message is sufficient."""
    tree = manifest.tree_of(spec.segment) or Tree()
    match rule:
        case "V1" | "V4":
            return _present(tree)
        case "V2":
            return "drain a segment, or compact the root tree"
        case "V3":
            return segments_of(manifest)
        case "V5":
            return f"use destination {fresh_run_id(manifest, compactions)}"
        case "V6":
            return f"name it as a source too, or use destination {min(spec.sorted_runs)}"
        case "V7":
            return _oldest_l0(tree, len(spec.l0_view_ids))
        case "V8":
            return _drain_suffix(tree, spec)
        case "V9" | "V12":
            return _competitors(compactions, spec)
        case "V11":
            return f"use destination {min(spec.sorted_runs)}"
        case _:
            return ""


def _present(tree: Tree) -> str:
    if tree.is_empty:
        return "the tree is empty"
    l0 = [str(view.id) for view in tree.l0]
    runs = [f"SR{run.id}" for run in tree.compacted]
    kinds = [f"{kind} {_listed(names)}" for kind, names in (("the L0s", l0), ("the runs", runs)) if names]
    return f"the tree has {' and '.join(kinds)}"


def _oldest_l0(tree: Tree, count: int) -> str:
    oldest = [str(view.id) for view in tree.l0[-count:]]
    return f"the oldest {len(oldest)} are {_listed(oldest)}, newest first"


def _drain_suffix(tree: Tree, spec: CompactionSpec) -> str:
    order, drained = order_of(spec.segment, tree), sources_of(spec)
    newest = min(order.index(source) for source in drained)
    names = [str(view.id) for view in tree.l0] + [f"SR{run.id}" for run in tree.compacted]
    return f"drain {_listed(names[newest:])}"


def _competitors(compactions: Compactions, spec: CompactionSpec) -> str:
    own = touched_by(spec)
    ids = [
        str(entry.id)
        for entry in compactions.entries
        if entry.is_active
        and (own & touched_by(entry.spec) or (entry.spec.segment == spec.segment and entry.spec.l0_view_ids))
    ]
    return f"wait for {_listed(ids)}, or cancel it" if ids else ""


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_MAX])
    return f"{shown} and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else shown


def plan_submission(
    manifest: Manifest, compactions: Compactions, request: CompactionRequest, id_of: Callable[[int], Ulid]
) -> tuple[Compaction, ...]:
    """Return the entries that a request adds, one per spec.

    Args:
        manifest: read after ``compactions``.
        id_of: returns the id of the n-th entry, the same one on each call.

    Raises:
        InvalidCompaction: a spec breaks a rule or conflicts with an active compaction; the message says what would be
            valid.
    """
    entries: list[Compaction] = []
    state = as_scheduled(compactions)
    for index, spec in enumerate(resolve(request, manifest, compactions)):
        entry = Compaction(id=id_of(index), spec=spec)
        check_entry(manifest, state, entry)
        entries.append(entry)
        state = with_entry(state, replace(entry, status=CompactionStatus.SCHEDULED))
    return tuple(entries)


def check_entry(manifest: Manifest, compactions: Compactions, entry: Compaction) -> None:
    """Check V1–V13; other Submitted entries count as scheduled, because one of two conflicting entries would fail.

    Raises:
        InvalidCompaction: names the first broken rule.
    """
    try:
        validate(manifest, as_scheduled(compactions), entry, ValidationStage.SUBMITTED)
    except InvalidCompaction as error:
        message = str(error).removeprefix(f"{error.rule}: ")
        hint = advice(error.rule, manifest, compactions, entry.spec)
        parts: Sequence[str] = [f"{describe(entry.spec)}: {message}", *([hint] if hint else [])]
        raise InvalidCompaction(error.rule, "; ".join(parts)) from error


def as_scheduled(compactions: Compactions) -> Compactions:
    """Return the compactions with all Submitted entries as Scheduled."""
    entries = tuple(
        replace(entry, status=CompactionStatus.SCHEDULED) if entry.status is CompactionStatus.SUBMITTED else entry
        for entry in compactions.entries
    )
    return replace(compactions, entries=entries)
