"""A compaction as JSON, in one form for the command line and for HTTP.  Fields are only ever added."""

from typing import Any

from shale.admin.json_values import b64, time_fields
from shale.compaction.requests import Spec, request_json
from shale.compaction.specs import describe, destination_of
from shale.compaction.status import CompactionInfo


def compaction_json(info: CompactionInfo) -> dict[str, Any]:
    """Everything that is known of one compaction."""
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
