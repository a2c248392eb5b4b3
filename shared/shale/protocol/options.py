"""Options of sequenced files, boundaries and epochs (docs/reference/protocol.md 1-3, Appendix A)."""

from enum import StrEnum

from shale.core.lazy_dataclass import dataclass
from shale.types import MANIFEST_VERSION, ManifestVersion


class MissingBoundary(StrEnum):
    """How to treat a boundary file that was seen before and is missing."""

    PANIC = "panic"
    ZERO = "zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolOptions:
    """Options that every process of a database shares.

    Args:
        component: the label of metrics (docs/how-to/monitor.md).
        probe_max_staleness_s: how long a version counts as the newest without a listing; smaller than
            every ``min_age`` of a collector of this database.
        missing_boundary: ``ZERO`` is what SlateDB does.
        boundary_files_enabled: off only for stores without conditional updates, and then in every collector.
        manifest_update_timeout_s: limit for claiming an epoch.
        manifest_write_version: the format of new manifests (docs/reference/format.md 4).
    """

    component: str = "admin"
    probe_max_staleness_s: float = 60.0
    missing_boundary: MissingBoundary = MissingBoundary.PANIC
    boundary_files_enabled: bool = True
    manifest_update_timeout_s: float = 300.0
    manifest_write_version: ManifestVersion = MANIFEST_VERSION
