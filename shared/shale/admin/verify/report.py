"""The report of a check of a database, and its JSON form."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from shale.admin.json_values import time_fields
from shale.admin.verify.orphans import Orphan, OrphanTotal
from shale.core.lazy_dataclass import dataclass
from shale.sst.verify.finding import Finding
from shale.sst.verify.sst import VerifyDepth


class DatabaseState(StrEnum):
    """The state of a database."""

    READY = "ready"
    HALF_BUILT_CLONE = "half-built-clone"
    SEALED = "sealed"
    DESTROYED = "destroyed"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The SSTs that a clone borrows from another database, and the checkpoint there that protects them."""

    path: str
    ssts: int
    checkpoint_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The checked objects and the findings.

    Args:
        is_complete: ``False`` if the newest manifest cannot be read or the database is being deleted, so that the
            objects that must exist are unknown.
        findings_left_out: number of findings beyond the limit.
        cannot_know: damages that no check of the files can find.
        orphans: unreferenced objects, which are not findings: they cost space and lose no rows.
        orphan_totals: number and bytes of all orphans, by reason.
    """

    path: str
    state: DatabaseState
    depth: VerifyDepth
    is_complete: bool = True
    manifest_id: int | None = None
    remarks: tuple[str, ...] = ()
    cannot_know: tuple[str, ...] = ()
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
    blocks: int = 0
    rows: int | None = None
    read_bytes: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether there are no findings."""
        return not self.findings and not self.findings_left_out


_NEVER_KNOWN = (
    "WAL files that were emptied: they look like fences",
    "WAL files after the last one that the manifest names, if they were deleted",
    "changes of the newest manifest that its older versions could have made, and all if no older version is kept",
)
_NOT_DECODED = "rows of SSTs (--deep decodes them)"
_NOT_READ = "blocks of SSTs and WAL files that replay does not need (left out by --quick)"


def cannot_know(depth: VerifyDepth) -> tuple[str, ...]:
    """Return the damages that a check of this depth cannot find."""
    left_out = {VerifyDepth.QUICK: (_NOT_READ, _NOT_DECODED), VerifyDepth.CHECKSUMS: (_NOT_DECODED,)}
    return (*left_out.get(depth, ()), *_NEVER_KNOWN)


COUNTS = ("checkpoints", "objects", "versions", "ssts", "wal_files", "blocks", "rows", "read_bytes")
"""Fields with numbers of checked items.  ``blocks``: those of SSTs.  ``rows``: ``None`` unless rows were decoded."""


def report_json(report: VerifyReport, *, min_age_ms: int) -> dict[str, Any]:
    """Return the report as plain JSON values.

    Args:
        min_age_ms: ``min_age`` of GC, from which the deletion time of an orphan follows.
    """
    return {
        "path": report.path,
        "state": report.state.value,
        "is_sound": report.is_sound,
        "is_complete": report.is_complete,
        "deep": report.depth is VerifyDepth.DEEP,
        "depth": report.depth.value,
        "manifest_id": report.manifest_id,
        "remarks": list(report.remarks),
        "cannot_know": list(report.cannot_know),
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
    """Return one finding as plain JSON values."""
    return {
        "severity": finding.severity.value,
        "code": finding.code.value,
        "object": finding.object,
        "place": None if finding.offset is None else f"byte {finding.offset}",
        "offset": finding.offset,
        "message": finding.what,
    }


def orphan_json(orphan: Orphan, min_age_ms: int) -> dict[str, Any]:
    """Return one orphan as plain JSON values."""
    return {
        "object": orphan.object,
        "bytes": orphan.size,
        "reason": orphan.reason,
        "kept_by": orphan.kept_by,
        **time_fields("collected_from", None if orphan.made_ms is None else orphan.made_ms + min_age_ms),
    }
