"""The state of a database as plain JSON values for the console.

Lists are cut, so that a page about a huge database stays small; counts and sizes are those of the whole.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from shale.admin.json_values import b64, checkpoint_json
from shale.types import Compaction, Compactions, Manifest, Sst, SstView, Tree
from shale.types.writer_sign import writer_status

TREES_MAX = 32
VIEWS_MAX = 64
RUNS_MAX = 64
CHECKPOINTS_MAX = 50
COMPACTIONS_MAX = 30


def manifest_json(manifest_id: int, manifest: Manifest, now_ms: int) -> dict[str, Any]:
    """Return epochs, the WAL and the trees of a manifest."""
    trees = list(manifest.trees())
    writer = writer_status(manifest, now_ms)
    return {
        "manifest_id": manifest_id,
        "writer_epoch": manifest.writer_epoch,
        "writer": writer.presence.value,
        "writer_host": None if writer.identity is None else writer.identity.host,
        "compactor_epoch": manifest.compactor_epoch,
        "wal": {
            "replay_after_id": manifest.replay_after_wal_id,
            "next_id": manifest.next_wal_sst_id,
            "last_l0_seq": manifest.last_l0_seq,
        },
        "ssts": len(manifest.ssts()),
        "bytes": _bytes(manifest.ssts().values()),
        "trees": [_tree_json(prefix, tree) for prefix, tree in trees[:TREES_MAX]],
        "tree_count": len(trees),
        "parents": [each.path for each in manifest.external_dbs[:TREES_MAX]],
    }


def checkpoints_json(manifest: Manifest, pinned: Mapping[int, Manifest], now_ms: int) -> list[dict[str, Any]]:
    """Return the checkpoints and what they keep: SSTs of their manifest that the latest one does not have.

    Args:
        manifest: the latest manifest.
        pinned: the manifests of checkpoints that were read, by id.
        now_ms: the present time.
    """
    current = manifest.ssts().keys()
    found = []
    for checkpoint in manifest.checkpoints[:CHECKPOINTS_MAX]:
        state = pinned.get(checkpoint.manifest_id)
        kept = None if state is None else [sst for id_, sst in state.ssts().items() if id_ not in current]
        found.append(
            {
                **checkpoint_json(checkpoint, now_ms),
                "pinned_ssts": None if kept is None else len(kept),
                "pinned_bytes": None if kept is None else _bytes(kept),
            }
        )
    return found


def compactions_json(compactions: Compactions | None, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the newest compactions, the newest first; inputs that are not in the manifest any more count as 0."""
    if compactions is None:
        return []
    newest = compactions.entries[-COMPACTIONS_MAX:]
    return [_compaction_json(entry, manifest) for entry in reversed(newest)]


def _compaction_json(entry: Compaction, manifest: Manifest) -> dict[str, Any]:
    tree = manifest.tree_of(entry.spec.segment) or Tree()
    runs = set(entry.spec.sorted_runs)
    views = set(entry.spec.l0_view_ids)
    input_bytes = _view_bytes(view for view in tree.l0 if view.id in views)
    input_bytes += sum(_view_bytes(run.ssts) for run in tree.compacted if run.id in runs)
    outputs = [*entry.output_ssts]
    if entry.ctx is not None:
        outputs += [sst for part in entry.ctx.subcompactions for sst in part.output_ssts]
    return {
        "id": str(entry.id),
        "status": entry.status.name.lower(),
        "l0": len(views),
        "runs": [int(run) for run in entry.spec.sorted_runs],
        "input_bytes": input_bytes,
        "output_bytes": _bytes(outputs),
        "worker": None if entry.worker is None else entry.worker.worker_id,
    }


def _tree_json(prefix: bytes, tree: Tree) -> dict[str, Any]:
    return {
        "segment_b64": b64(prefix),
        "l0": [{"id": str(view.id), "bytes": view.sst.estimated_size_bytes} for view in tree.l0[:VIEWS_MAX]],
        "l0_count": len(tree.l0),
        "l0_bytes": _view_bytes(tree.l0),
        "runs": [
            {"id": int(run.id), "ssts": len(run.ssts), "bytes": _view_bytes(run.ssts)}
            for run in tree.compacted[:RUNS_MAX]
        ],
        "run_count": len(tree.compacted),
        "run_bytes": sum(_view_bytes(run.ssts) for run in tree.compacted),
    }


def _view_bytes(views: Iterable[SstView]) -> int:
    return sum(view.sst.estimated_size_bytes for view in views)


def _bytes(ssts: Iterable[Sst]) -> int:
    return sum(sst.estimated_size_bytes for sst in ssts)
