"""The data of ``shale db info``, shown as a tree or as JSON."""

from functools import partial
from typing import Any

from shale.admin.json_values import b64, time_fields
from shale.core.lazy_dataclass import dataclass
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Compactions, Manifest, SortedRun, SstView, Tree
from shale.types.writer_sign import WriterStatus, writer_status
from shale_cli.framework.output.to_json import to_json
from shale_cli.framework.session import CliSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DbInfo:
    """The state of a database.  ``wal_last_id``: the last WAL file; ``wal_bytes``: size of WAL files not in L0 yet."""

    url: str
    now_ms: int
    manifest_id: int
    manifest_ms: int | None
    manifest: Manifest
    compactions: Compactions | None
    wal_last_id: int
    wal_bytes: int


async def read_db_info(session: CliSession) -> DbInfo:
    """Read the latest manifest and compactions file and find the end of the WAL.  Writes nothing.

    Raises:
        LatestRecordMissing: the database does not exist.
    """
    from shale.concurrency.gather import gather
    from shale.format.names import manifest_key
    from shale.protocol.compactions_store import CompactionsStore
    from shale.protocol.manifest_store import ManifestStore
    from shale.protocol.wal_store import WalStore

    async with session.open_store() as store, session.open_wal_store(store) as wal_store:
        compactions = await CompactionsStore(store, session.path, session.env).try_read_latest()
        latest = await ManifestStore(store, session.path, session.env).read_latest()
        about = await store.head(manifest_key(session.path, latest.id))
        wal = WalStore(wal_store, session.path)
        base = latest.value.replay_after_wal_id
        last_id = base
        if await wal.exists(base + 1):
            last_id = await wal.last_seen_wal_id(base + 1, has_gaps=latest.value.has_parallel_wal)
        sizes = await gather([partial(wal.size, wal_id) for wal_id in range(base + 1, last_id + 1)])
    return DbInfo(
        url=session.location.url,
        now_ms=session.env.clock.now_ms(),
        manifest_id=latest.id,
        manifest_ms=None if about is None else about.last_modified_ms,
        manifest=latest.value,
        compactions=None if compactions is None else compactions.value,
        wal_last_id=last_id,
        wal_bytes=sum(each or 0 for each in sizes),
    )


def db_info_json(shape: DbInfo) -> dict[str, Any]:
    """Return all data as JSON."""
    manifest = shape.manifest
    second = SequenceTracker.decode(manifest.sequence_tracker).seq_to_time(manifest.last_l0_seq, round_up=False)
    checkpoints: list[dict[str, Any]] = to_json(manifest.checkpoints)
    for each, checkpoint in zip(checkpoints, manifest.checkpoints, strict=True):
        each["expired"] = checkpoint.is_expired(shape.now_ms)
    return {
        "url": shape.url,
        "manifest_id": shape.manifest_id,
        **time_fields("manifest_time", shape.manifest_ms),
        "initialized": manifest.initialized,
        "writer_epoch": manifest.writer_epoch,
        "writer": _writer_json(writer_status(manifest, shape.now_ms), shape.now_ms),
        "compactor_epoch": manifest.compactor_epoch,
        "last_l0_seq": manifest.last_l0_seq,
        **time_fields("last_l0_time", None if second is None else second * 1000),
        "wal": {
            "replay_after_id": manifest.replay_after_wal_id,
            "last_id": shape.wal_last_id,
            "unflushed_files": shape.wal_last_id - manifest.replay_after_wal_id,
            "unflushed_bytes": shape.wal_bytes,
        },
        "ssts": len(manifest.ssts()),
        "bytes": sst_bytes(manifest),
        "trees": [_tree_json(prefix, tree) for prefix, tree in manifest.trees()],
        "compactions": _compactions_json(shape.compactions),
        "checkpoints": checkpoints,
        "external_dbs": [
            {
                "path": each.path,
                "source_checkpoint_id": str(each.source_checkpoint_id),
                "final_checkpoint_id": None if each.final_checkpoint_id is None else str(each.final_checkpoint_id),
                "ssts": len(each.sst_ids),
            }
            for each in manifest.external_dbs
        ],
    }


def sst_bytes(manifest: Manifest) -> int:
    """Return the total size of all SSTs in the manifest, each counted once."""
    return sum(sst.estimated_size_bytes for sst in manifest.ssts().values())


def _writer_json(status: WriterStatus, now_ms: int) -> dict[str, Any]:
    """Return the sign of life of the writer; see ``WriterPresence``."""
    identity = status.identity
    fields: dict[str, Any] = {"presence": status.presence.value}
    if identity is not None and status.seen_s is not None:
        fields |= {
            "holder": identity.holder,
            "host": identity.host,
            "endpoint": identity.endpoint,
            **time_fields("since", identity.since_s * 1000),
            **time_fields("seen", status.seen_s * 1000),
            "age_s": max(0, now_ms // 1000 - status.seen_s),
        }
    return fields


def _tree_json(prefix: bytes, tree: Tree) -> dict[str, Any]:
    return {
        "segment_b64": b64(prefix),
        "l0": [_view_json(view) for view in tree.l0],
        "runs": [_run_json(run) for run in tree.compacted],
    }


def _view_json(view: SstView) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "sst_id": str(view.sst.id),
        "bytes": view.sst.estimated_size_bytes,
        "is_cut": view.visible_range is not None,
    }


def _run_json(run: SortedRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "ssts": len(run.ssts),
        "bytes": run.estimated_size_bytes,
        "is_cut": any(view.visible_range is not None for view in run.ssts),
    }


def _compactions_json(compactions: Compactions | None) -> dict[str, int] | None:
    """Count compactions by status; ``None`` if no compactor was ever started."""
    if compactions is None:
        return None
    counts: dict[str, int] = {}
    for entry in compactions.entries:
        name = entry.status.name.lower()
        counts[name] = counts.get(name, 0) + 1
    return counts
