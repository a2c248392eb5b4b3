"""What a check of a whole database comes to, and how that is written as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shale.admin.json_values import time_fields
from shale.admin.verify.orphans import Orphan, OrphanTotal
from shale.sst.verify.finding import Finding


class State(StrEnum):
    """What a database is in the middle of."""

    READY = "ready"
    HALF_BUILT_CLONE = "half-built-clone"
    SEALED = "sealed"
    DESTROYED = "destroyed"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a clone reads of another database, and the checkpoint there that keeps it."""

    path: str
    ssts: int
    checkpoint_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was checked, and what was found.

    ``findings_left_out``: more of them than anybody reads.  ``is_complete``: false if the newest manifest cannot be
    read, or a destruction is under way, so that nobody knows what has to be there.  ``orphans`` are no findings: they
    cost space, not rows; ``orphan_totals`` counts all of them, by reason.
    """

    path: str
    state: State
    deep: bool
    is_complete: bool = True
    manifest_id: int | None = None
    remarks: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_left_out: int = 0
    orphans: tuple[Orphan, ...] = ()
    orphan_totals: Mapping[str, OrphanTotal] = field(default_factory=dict)
    borrowed: tuple[Borrowed, ...] = ()
    checkpoints: int = 0
    objects: int = 0
    versions: int = 0
    ssts: int = 0
    wal_files: int = 0
    rows: int = 0
    read_bytes: int = 0

    @property
    def is_sound(self) -> bool:
        """Nothing was found."""
        return not self.findings and not self.findings_left_out


COUNTS = ("checkpoints", "objects", "versions", "ssts", "wal_files", "rows", "read_bytes")
"""Fields that say how much was looked at.  Rows are those of blocks that were read."""


def report_json(report: VerifyReport, *, min_age_ms: int) -> dict[str, Any]:
    """The report as plain values.

    Args:
        min_age_ms: what collectors wait for; tells from when an orphan may go.
    """
    return {
        "path": report.path,
        "state": report.state.value,
        "is_sound": report.is_sound,
        "is_complete": report.is_complete,
        "deep": report.deep,
        "manifest_id": report.manifest_id,
        "remarks": list(report.remarks),
        "checked": {name: getattr(report, name) for name in COUNTS},
        "findings": [finding_json(finding) for finding in report.findings],
        "findings_left_out": report.findings_left_out,
        "borrowed": [
            {"path": each.path, "ssts": each.ssts, "checkpoint_id": each.checkpoint_id} for each in report.borrowed
        ],
        "orphans": {
            "objects": sum(total.objects for total in report.orphan_totals.values()),
            "bytes": sum(total.bytes for total in report.orphan_totals.values()),
            "by_reason": [
                {"reason": reason, "objects": total.objects, "bytes": total.bytes}
                for reason, total in report.orphan_totals.items()
            ],
            "listed": [orphan_json(orphan, min_age_ms) for orphan in report.orphans],
        },
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding as plain values."""
    return {
        "severity": finding.severity.value,
        "code": finding.code.value,
        "object": finding.object,
        "place": None if finding.offset is None else f"byte {finding.offset}",
        "offset": finding.offset,
        "message": finding.what,
    }


def orphan_json(orphan: Orphan, min_age_ms: int) -> dict[str, Any]:
    """One orphan as plain values."""
    return {
        "object": orphan.object,
        "bytes": orphan.size,
        "reason": orphan.reason,
        "kept_by": orphan.kept_by,
        **time_fields("collected_from", None if orphan.made_ms is None else orphan.made_ms + min_age_ms),
    }
