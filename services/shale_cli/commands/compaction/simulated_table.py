"""The results of ``shale compaction simulate`` as table rows and as JSON."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from shale.core.units import format_size

if TYPE_CHECKING:
    from shale.compaction.simulate.result import SimulationResult

COLUMNS = (
    "policy",
    "write_amp",
    "space_amp",
    "space_max",
    "read_amp",
    "read_max",
    "stalled",
    "written_per_hour",
    "requests_per_hour",
    "jobs",
)


def table_row(result: "SimulationResult") -> Mapping[str, Any]:
    """Return a result as table cells."""
    return {
        "policy": result.policy,
        "write_amp": f"{result.write_amplification:.2f}",
        "space_amp": f"{result.space_amplification:.2f}",
        "space_max": f"{result.space_amplification_max:.2f}",
        "read_amp": f"{result.read_amplification:.1f}",
        "read_max": result.read_amplification_max,
        "stalled": f"{result.stall_s / result.duration_s:.1%}",
        "written_per_hour": format_size(result.bytes_written_per_hour),
        "requests_per_hour": round(result.requests_per_hour),
        "jobs": result.jobs,
    }


def result_json(result: "SimulationResult") -> Mapping[str, Any]:
    """Return all figures of a result as JSON, without the time series."""
    data = {each.name: getattr(result, each.name) for each in fields(result) if each.name != "samples"}
    return {
        **data,
        "bytes_written_per_hour": result.bytes_written_per_hour,
        "requests_per_hour": result.requests_per_hour,
    }
