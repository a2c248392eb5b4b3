"""Human-readable forms of a compaction: name-value rows, list columns, one line of progress."""

from collections.abc import Iterator
from typing import Any

from shale.admin.json_values import compaction_json, rfc3339
from shale.compaction.specs import describe
from shale.compaction.status import CompactionInfo
from shale.core.units import format_size
from shale.types import CompactionSpec
from shale_cli.framework.output.writer import Format, Output

COLUMNS = ("id", "phase", "progress", "created", "spec", "error")


def item(info: CompactionInfo, output: Output) -> dict[str, Any]:
    """Return one list item: all fields as JSON, or the columns of a table."""
    if output.format is not Format.TABLE:
        return compaction_json(info)
    return {
        "id": info.id,
        "phase": info.phase.value,
        "progress": percent(info),
        "created": rfc3339(info.created_ms),
        "spec": brief(info.spec),
        "error": info.error,
    }


def brief(spec: CompactionSpec) -> str:
    """Describe a spec in one column: several L0s are counted instead of listed."""
    if len(spec.l0_view_ids) <= 1:
        return describe(spec)
    views = ", ".join(str(view_id) for view_id in spec.l0_view_ids)
    return describe(spec).replace(views, f"{len(spec.l0_view_ids)} L0s", 1)


def rows(info: CompactionInfo) -> list[tuple[str, object]]:
    """Return the rows of ``status``."""
    return list(_rows(info))


def line(info: CompactionInfo) -> str:
    """Format one line of progress."""
    progress = info.progress
    parts = [f"{info.id} {info.phase.value}", percent(info)]
    if progress.bytes_total is not None:
        parts.append(f"{format_size(progress.bytes_processed)} of {format_size(progress.bytes_total)}")
    if info.estimated_completion_ms is not None:
        parts.append(f"ends about {rfc3339(info.estimated_completion_ms)}")
    if info.attempts > 1:
        parts.append(f"attempt {info.attempts}")
    return "  ".join(parts)


def brief_line(info: CompactionInfo) -> str:
    """Format a shorter line, which fits next to an id and a bar in eighty columns."""
    parts = [info.phase.value, percent(info)]
    if info.estimated_completion_ms is not None:
        parts.append(f"ends {rfc3339(info.estimated_completion_ms)[11:19]}Z")
    return "  ".join(parts)


def percent(info: CompactionInfo) -> str:
    """Format the progress in percent; ``?`` if it is unknown."""
    share = info.progress.percentage
    return "?" if share is None else f"{share:.1f} %"


def _rows(info: CompactionInfo) -> Iterator[tuple[str, object]]:
    progress = info.progress
    yield "id", info.id
    yield "spec", describe(info.spec)
    yield "phase", info.phase.value
    yield "progress", percent(info)
    if progress.input_ssts is not None and progress.bytes_total is not None:
        yield "inputs", f"{progress.input_ssts_processed} of {progress.input_ssts} SSTs done"
        yield "bytes", f"{format_size(progress.bytes_processed)} of {format_size(progress.bytes_total)}"
    yield "outputs", f"{progress.output_ssts} SSTs  {format_size(progress.output_bytes)}"
    samples = (
        ("created", info.created_ms),
        ("started", info.started_ms),
        ("finished", info.finished_ms),
        ("ends about", info.estimated_completion_ms),
    )
    yield from ((name, rfc3339(ms)) for name, ms in samples if ms is not None)
    yield "attempts", info.attempts
    if info.kind is not None:
        yield "kind", info.kind.value
    if info.retry_of is not None:
        yield "retry of", info.retry_of
    if info.worker is not None:
        age = "" if info.heartbeat_age_ms is None else f"  heartbeat {info.heartbeat_age_ms / 1000:.1f} s ago"
        yield "worker", f"{info.worker.worker_id}{age}"
    if info.error is not None:
        yield "error", info.error
