"""Values of Shale in the form of ``contents.json``, the recorded output of SlateDB's admin interface."""

import hashlib
from typing import Any

from shale.types import (
    BoundKind,
    Checkpoint,
    Compaction,
    Compactions,
    Compression,
    DrainSpec,
    KeyRange,
    Manifest,
    Sst,
    SstInfo,
    SstView,
    Tree,
)

_LONG = 300


def data(value: bytes | None) -> Any:
    """Return hexadecimal digits, or length and digest of long bytes."""
    if value is None:
        return None
    if len(value) > _LONG:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return value.hex()


def text(value: object) -> str | None:
    """Return an id as text."""
    return None if value is None else str(value)


def info(value: SstInfo) -> dict[str, Any]:
    """Return the fields of a footer."""
    return {
        "first_entry": data(value.first_entry),
        "last_entry": data(value.last_entry),
        "index_offset": value.index_offset,
        "index_len": value.index_len,
        "filter_offset": value.filter_offset,
        "filter_len": value.filter_len,
        "compression_codec": None if value.compression is Compression.NONE else value.compression.name,
        "sst_type": value.sst_type.name,
        "stats_offset": value.stats_offset,
        "stats_len": value.stats_len,
        "filter_format": value.filter_format.name,
    }


def sst(value: Sst) -> dict[str, Any]:
    """Return the fields of a physical SST."""
    return {"id": str(value.id), "info": info(value.info)}


def key_range(value: KeyRange | None) -> dict[str, Any] | None:
    """Return the fields of a visible range."""
    if value is None:
        return None
    return {
        "start": data(value.start.key),
        "start_inclusive": value.start.kind is BoundKind.INCLUDED,
        "end": data(value.end.key),
        "end_inclusive": value.end.kind is BoundKind.INCLUDED,
    }


def view(value: SstView) -> dict[str, Any]:
    """Return the fields of a view."""
    return {"id": str(value.id), "sst": sst(value.sst), "visible_range": key_range(value.visible_range)}


def tree(value: Tree) -> dict[str, Any]:
    """Return the lists of a tree."""
    return {
        "last_compacted_l0_sst_view_id": text(value.last_compacted_l0_sst_view_id),
        "l0": [view(each) for each in value.l0],
        "compacted": [{"id": run.id, "ssts": [view(each) for each in run.ssts]} for run in value.compacted],
    }


def checkpoint(value: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint."""
    return {
        "id": str(value.id),
        "manifest_id": value.manifest_id,
        "expire_time_secs": value.expire_s or None,
        "create_time_secs": value.create_s,
        "name": value.name,
    }


def manifest(id_: int, value: Manifest) -> dict[str, Any]:
    """Return the fields of a manifest, without the SST id of the watermark, which only SlateDB's process knows."""
    return {
        "id": id_,
        "writer_epoch": value.writer_epoch,
        "compactor_epoch": value.compactor_epoch,
        "external_dbs": [
            {
                "path": each.path,
                "source_checkpoint_id": str(each.source_checkpoint_id),
                "final_checkpoint_id": text(each.final_checkpoint_id),
                "sst_ids": [str(sst_id) for sst_id in each.sst_ids],
            }
            for each in value.external_dbs
        ],
        "initialized": value.initialized,
        **tree(value.tree),
        "segments": [{"prefix": data(each.prefix), **tree(each.tree)} for each in value.segments],
        "next_wal_sst_id": value.next_wal_sst_id,
        "replay_after_wal_id": value.replay_after_wal_id,
        "last_l0_clock_tick": value.last_l0_clock_tick,
        "last_l0_seq": value.last_l0_seq,
        "recent_snapshot_min_seq": value.recent_snapshot_min_seq,
        "checkpoints": [checkpoint(each) for each in value.checkpoints],
        "wal_object_store_uri": value.wal_object_store_uri,
    }


def compaction(value: Compaction) -> dict[str, Any]:
    """Return the fields of one compaction, without worker and context, which the recording lacks."""
    sources: list[dict[str, Any]] = [{"sst_view": str(id_)} for id_ in value.spec.l0_view_ids]
    sources += [{"sorted_run": run} for run in value.spec.sorted_runs]
    assert not isinstance(value.spec, DrainSpec), "0.17 was never seen to write one"
    return {
        "id": str(value.id),
        "spec": {
            "type": "tiered",
            "segment": data(value.spec.segment),
            "sources": sources,
            "destination": value.spec.destination,
        },
        "status": value.status.name,
        "output_ssts": [sst(each) for each in value.output_ssts],
    }


def compactions(id_: int, value: Compactions) -> dict[str, Any]:
    """Return the entries of a compactions file."""
    return {
        "id": id_,
        "compactor_epoch": value.compactor_epoch,
        "compactions": [compaction(each) for each in value.entries],
    }
