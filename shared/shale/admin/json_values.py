"""JSON encodings of values, for the command line and for HTTP (docs/how-to/command-line.md)."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from shale.compaction.requests import Spec, request_json
from shale.compaction.specs import describe, destination_of
from shale.compaction.status import CompactionInfo
from shale.types import Checkpoint


def b64(data: bytes) -> str:
    """Return bytes as Base64."""
    return base64.b64encode(data).decode()


def rfc3339(ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 in UTC."""
    utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def time_fields(name: str, ms: int | None) -> dict[str, object]:
    """Return a time as two fields: RFC 3339, and milliseconds since 1970."""
    return {name: None if ms is None else rfc3339(ms), f"{name}_ms": ms}


def checkpoint_json(checkpoint: Checkpoint, now_ms: int) -> dict[str, Any]:
    """Return one checkpoint as plain JSON values; without expiry, its time is ``None``."""
    return {
        "id": str(checkpoint.id),
        "manifest_id": int(checkpoint.manifest_id),
        "name": checkpoint.name,
        **_seconds_fields("create", checkpoint.create_s),
        **_seconds_fields("expire", checkpoint.expire_s),
        "state": state_of(checkpoint, now_ms),
    }


def state_of(checkpoint: Checkpoint, now_ms: int) -> str:
    """Return ``no_expiry``, ``active`` or ``expired``; an expired checkpoint protects nothing, and GC removes it."""
    if not checkpoint.expire_s:
        return "no_expiry"
    return "expired" if checkpoint.is_expired(now_ms) else "active"


def _seconds_fields(name: str, seconds: int) -> dict[str, object]:
    ms = seconds * 1000 or None
    return {f"{name}_time": None if ms is None else rfc3339(ms), f"{name}_ms": ms}


def compaction_json(info: CompactionInfo) -> dict[str, Any]:
    """Return one compaction as plain JSON values."""
    spec = info.spec
    return {
        "id": str(info.id),
        "status": info.status.name.lower(),
        "phase": info.phase.value,
        "spec": describe(spec),
        "segment_b64": b64(spec.segment),
        "source_ssts": [str(view_id) for view_id in spec.l0_view_ids],
        "source_srs": [int(run_id) for run_id in spec.sorted_runs],
        "target": destination_of(spec),
        "request": request_json(Spec(spec)),
        "progress": _progress(info),
        "outputs": [{"id": str(sst.id), "bytes": sst.estimated_size_bytes} for sst in info.outputs],
        **time_fields("created_at", info.created_ms),
        **time_fields("started_at", info.started_ms),
        **time_fields("completed_at", info.finished_ms),
        "attempts": info.attempts,
        "kind": info.kind,
        "retry_of": None if info.retry_of is None else str(info.retry_of),
        "worker": _worker(info),
        "error_message": info.error,
    }


def _progress(info: CompactionInfo) -> dict[str, Any]:
    progress = info.progress
    return {
        "input_ssts_processed": progress.input_ssts_processed,
        "total_input_ssts": progress.input_ssts,
        "output_ssts_written": progress.output_ssts,
        "output_bytes": progress.output_bytes,
        "bytes_processed": progress.bytes_processed,
        "total_bytes": progress.bytes_total,
        "completion_percentage": progress.percentage,
        **time_fields("estimated_completion", info.estimated_completion_ms),
    }


def _worker(info: CompactionInfo) -> dict[str, Any] | None:
    if info.worker is None:
        return None
    return {
        "id": info.worker.worker_id,
        **time_fields("last_heartbeat", info.worker.last_heartbeat_ms),
        "heartbeat_age_ms": info.heartbeat_age_ms,
    }
