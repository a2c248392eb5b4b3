"""The settings of the audit log (docs/how-to/audit.md)."""

from pathlib import Path

from pydantic import Field

from shale.service.config.section import Section


class AuditSection(Section):
    """The audit log: calls of the admin port that may change something."""

    file: Path | None = Field(
        default=None, description="Also append the audit log to this file; it may be renamed or truncated at any time."
    )
