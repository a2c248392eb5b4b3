"""How ``shale backup`` shows backups, restores and reports."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shale.admin.json_values import time_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shale.backup.backup_store import UnfinishedBackup
    from shale.backup.copying import BackupProgress, OnProgress
    from shale.backup.document import Backup
    from shale.backup.planner import PrunePlan
    from shale.backup.restore import RestoreResult
    from shale.backup.verify import BackupReport
    from shale_cli.framework.output.writer import Output
    from shale_cli.framework.session import CliSession

LIST_COLUMNS = ("id", "state", "path", "started_at", "objects", "bytes", "copied_bytes")
MIB = 1 << 20
_FINDING_COLUMNS = ("key", "message")


@contextmanager
def copy_progress(session: "CliSession", verb: str) -> "Iterator[OnProgress]":
    """Show the progress of a copy, with its rate."""
    from shale_cli.framework.output.progress import progress

    with progress(session.output, session.env.clock, verb, "MiB") as on_progress:

        def show(reached: "BackupProgress") -> None:
            on_progress(reached.done_bytes // MIB, reached.total_bytes // MIB)

        yield show


def backup_fields(backup: "Backup") -> dict[str, Any]:
    """Return a backup as plain JSON values, without its objects."""
    wal = sorted(backup.wal)
    return {
        "id": str(backup.id),
        "state": "complete",
        **_attributes(backup, "source", "path"),
        **time_fields("started_at", backup.started_ms),
        **time_fields("completed_at", backup.completed_ms),
        **_attributes(backup, "manifest_id", "last_l0_seq"),
        "first_wal_id": wal[0] if wal else None,
        "last_wal_id": wal[-1] if wal else None,
        "encryption_keys": list(backup.encryption_keys),
        "objects": len(backup.objects),
        "bytes": backup.size,
        **_attributes(backup, "copied_objects", "copied_bytes"),
    }


def _attributes(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def backup_rows(data: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the rows of the table of one backup."""
    keys = ", ".join(data["encryption_keys"]) or None
    return [(name, keys if name == "encryption_keys" else value) for name, value in data.items() if name[-3:] != "_ms"]


def unfinished_fields(plan: "UnfinishedBackup") -> dict[str, Any]:
    """Return a backup in progress as plain JSON values."""
    return {
        "id": str(plan.plan_id),
        "state": "in-progress",
        **_attributes(plan, "source", "path"),
        **time_fields("started_at", plan.started_ms),
        **time_fields("completed_at", None),
        "manifest_id": plan.manifest_id,
        "copied_objects": len(plan.copied),
        "copied_bytes": sum(each.size for each in plan.copied.values()),
    }


def restore_fields(done: "RestoreResult") -> dict[str, Any]:
    """Return the result of a restore as plain JSON values."""
    numbers = ("manifest_id", "copied_objects", "copied_bytes", "wal_files", "last_seq", "undo_checkpoint")
    return {"backup_id": str(done.backup_id), **_attributes(done, "path", *numbers)}


def show_report(output: "Output", report: "BackupReport") -> None:
    """Print the findings and numbers of a check."""
    from shale_cli.framework.output.writer import Format

    findings = [{"key": each.key, "message": each.message} for each in report.findings]
    data = {
        "id": str(report.backup.id),
        "depth": report.depth,
        "objects": len(report.backup.objects),
        "bytes": report.backup.size,
        "read_bytes": report.read_bytes,
        "rows": report.rows,
        "encryption_keys": list(report.backup.encryption_keys),
    }
    if output.format is Format.CSV or (output.is_table and findings):
        output.listing("findings", findings, _FINDING_COLUMNS)
    if output.format is not Format.CSV:
        output.record({**data, "findings": findings}, [*backup_rows(data), ("findings", len(findings))])


def prune_fields(plan: "PrunePlan", *, is_done: bool) -> dict[str, Any]:
    """Return the plan of a prune as plain JSON values."""
    return {
        "is_done": is_done,
        "removed": [str(each.id) for each in plan.removed],
        "kept": [str(each.id) for each in plan.kept],
        "in_progress": [str(each.id) for each in plan.unfinished],
        "abandoned": [str(each.id) for each in plan.abandoned],
        "objects": len(plan.objects),
        "bytes": plan.size,
    }


def prune_rows(data: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the rows of the table of a prune."""
    return [(name, len(value) if isinstance(value, list) else value) for name, value in data.items()]
