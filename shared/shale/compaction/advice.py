"""What would be valid instead: the sentence behind a refusal, made of the tree as it is (docs/protocol.md 6.13)."""

from shale.compaction.requests import segments_of
from shale.compaction.specs import fresh_run_id, order_of, sources_of, touched_by
from shale.types import Compactions, CompactionSpec, Manifest, RunId, Tree

_NAMES_MAX = 8


def advice(rule: str, manifest: Manifest, compactions: Compactions, spec: CompactionSpec) -> str:
    """How to ask so that ``rule`` holds; empty where the refusal says it all."""
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
            return f"name it as a source too, or use destination {_destination(manifest, compactions, spec)}"
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
    order, drained = order_of(spec.segment, tree), set(sources_of(spec))
    newest = next((index for index, source in enumerate(order) if source in drained), 0)
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


def _destination(manifest: Manifest, compactions: Compactions, spec: CompactionSpec) -> RunId:
    return min(spec.sorted_runs) if spec.sorted_runs else fresh_run_id(manifest, compactions)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_MAX])
    return f"{shown} and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else shown
