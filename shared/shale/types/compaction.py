"""Compactions and the file that coordinates them (docs/reference/format.md 5, docs/reference/protocol.md 6.2)."""

from enum import IntEnum

from shale.core.lazy_dataclass import dataclass
from shale.types.ids import Epoch, RunId, Seq, Ulid
from shale.types.ranges import KeyRange
from shale.types.sst import Sst


class CompactionStatus(IntEnum):
    """The state of a compaction; the values are those of the format."""

    SUBMITTED = 0
    RUNNING = 1
    COMPLETED = 2
    FAILED = 3
    COMPACTED = 4
    SCHEDULED = 5

    @property
    def is_finished(self) -> bool:
        """Completed or failed; everything else is active."""
        return self in (CompactionStatus.COMPLETED, CompactionStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredSpec:
    """Merge L0 views (newest first) and runs (highest id first) of one tree into the run ``destination``."""

    l0_view_ids: tuple[Ulid, ...] = ()
    sorted_runs: tuple[RunId, ...] = ()
    destination: RunId
    segment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """Remove L0 views and runs of one segment without reading them."""

    segment: bytes
    l0_view_ids: tuple[Ulid, ...] = ()
    sorted_runs: tuple[RunId, ...] = ()


CompactionSpec = TieredSpec | DrainSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClaim:
    """The worker that runs a compaction, and its own clock at its last heartbeat."""

    worker_id: str
    last_heartbeat_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcompaction:
    """One key range of a compaction and its output SSTs so far, in key order."""

    range: KeyRange
    output_ssts: tuple[Sst, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionContext:
    """Resumable progress.  The ranges cover all keys; they and ``retention_min_seq`` never change once written."""

    subcompactions: tuple[Subcompaction, ...]
    retention_min_seq: Seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One entry of the compactions file."""

    id: Ulid
    spec: CompactionSpec
    status: CompactionStatus = CompactionStatus.SUBMITTED
    output_ssts: tuple[Sst, ...] = ()
    worker: WorkerClaim | None = None
    ctx: CompactionContext | None = None

    @property
    def is_active(self) -> bool:
        """Not finished."""
        return not self.status.is_finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactions:
    """A version of the compactions file; ``entries`` ascend by id."""

    compactor_epoch: Epoch = Epoch(0)
    entries: tuple[Compaction, ...] = ()

    def get(self, id: Ulid) -> Compaction | None:  # noqa: A002 - the field's name
        """Return the entry with this id, if there is one."""
        return next((entry for entry in self.entries if entry.id == id), None)
