"""The one list of log events (docs/operations.md 8), each with the level it is logged at.

An event is an identifier; everything that varies is a field.  A new event gets its row in the documentation first.
"""

from enum import StrEnum


class Event(StrEnum):
    """What happened.  ``level`` is the method of the logger that a call must use; a test compares both."""

    level: str

    def __new__(cls, value: str, level: str) -> "Event":
        """An event of this name and level."""
        event = str.__new__(cls, value)
        event._value_ = value
        event.level = level
        return event

    DAEMON_STARTED = "daemon.started", "info"
    DAEMON_READY = "daemon.ready", "info"
    DAEMON_FAILED = "daemon.failed", "error"
    SHUTDOWN_STARTED = "shutdown.started", "info"
    SHUTDOWN_DONE = "shutdown.done", "info"
    SHUTDOWN_INCOMPLETE = "shutdown.incomplete", "error"
    CONFIG_RELOADED = "config.reloaded", "info"
    CONFIG_UNKNOWN_ENV = "config.unknown_env", "warning"
    CONFIG_DEPRECATED = "config.deprecated", "warning"
    STORE_REQUEST_RETRIED = "store.request.retried", "info"
    STORE_AUTH_FAILED = "store.auth.failed", "error"
    STORE_UNSAFE = "store.unsafe", "error"
    STORE_CLOCK_SKEWED = "store.clock.skewed", "warning"
    SEQUENCED_LIST_MISSING = "sequenced.list.missing", "warning"
    SEQUENCED_LIST_UNKNOWN_FILE = "sequenced.list.unknown_file", "warning"
    SEQUENCED_READ_LIST_FALLBACK = "sequenced.read.list_fallback", "debug"
    SEQUENCED_READ_BEHIND_BOUNDARY = "sequenced.read.behind_boundary", "warning"
    BOUNDARY_ADVANCE_FAILED = "boundary.advance.failed", "warning"
    BOUNDARY_WRITE_REJECTED = "boundary.write.rejected", "warning"
    BOUNDARY_DISABLED = "boundary.disabled", "warning"
    MANIFEST_UPDATE_CONFLICT = "manifest.update.conflict", "debug"
    MANIFEST_INVARIANT_INHERITED = "manifest.invariant.inherited", "error"
    EPOCH_CLAIMED = "epoch.claimed", "info"
    WRITER_FENCED = "writer.fenced", "warning"
    COMPACTOR_FENCED = "compactor.fenced", "warning"
    DB_OPENED = "db.opened", "info"
    DB_CLOSED = "db.closed", "info"
    DB_DESTROYED = "db.destroyed", "info"
    WAL_FENCE_WRITTEN = "wal.fence.written", "info"
    WAL_REPLAY_DONE = "wal.replay.done", "info"
    WAL_FLUSH_OK = "wal.flush.ok", "debug"
    WAL_FLUSH_FAILED = "wal.flush.failed", "error"
    MEMTABLE_FLUSH_OK = "memtable.flush.ok", "debug"
    MEMTABLE_FLUSH_STALLED = "memtable.flush.stalled", "warning"
    WRITER_BACKPRESSURE_STARTED = "writer.backpressure.started", "warning"
    WRITER_BACKPRESSURE_ENDED = "writer.backpressure.ended", "info"
    COMPACTION_SUBMITTED = "compaction.submitted", "info"
    COMPACTION_CLAIMED = "compaction.claimed", "info"
    COMPACTION_RECLAIMED = "compaction.reclaimed", "info"
    COMPACTION_RELEASED = "compaction.released", "info"
    COMPACTION_FINISHED = "compaction.finished", "info"
    COMPACTION_COMMITTED = "compaction.committed", "info"
    COMPACTION_CANCELLED = "compaction.cancelled", "info"
    COMPACTION_REJECTED = "compaction.rejected", "error"
    COMPACTION_FAILED = "compaction.failed", "error"
    COMPACTION_OWNERSHIP_LOST = "compaction.ownership.lost", "warning"
    COMPACTION_PROGRESS = "compaction.progress", "info"
    EXECUTOR_UNAVAILABLE = "executor.unavailable", "warning"
    COMPACTION_REMOTE_IGNORED = "compaction.remote.ignored", "error"
    CHECKPOINT_CREATED = "checkpoint.created", "info"
    CHECKPOINT_DELETED = "checkpoint.deleted", "info"
    CHECKPOINT_EXPIRED = "checkpoint.expired", "info"
    READER_CHECKPOINT_REFRESHED = "reader.checkpoint.refreshed", "info"
    READER_CHECKPOINT_REESTABLISHED = "reader.checkpoint.reestablished", "warning"
    READER_POLL_FAILED = "reader.poll.failed", "warning"
    GC_CUTOFF_COMPUTED = "gc.cutoff.computed", "debug"
    GC_DELETE = "gc.delete", "info"
    GC_DELETE_FAILED = "gc.delete.failed", "error"
    GC_PLAN = "gc.plan", "info"
    GC_TASK_FAILED = "gc.task.failed", "error"
    GC_FILTER_FOREIGN = "gc.filter.foreign", "warning"
    GC_DATABASE_GONE = "gc.database.gone", "info"
    CLONE_CREATED = "clone.created", "info"
    CLONE_DETACHED = "clone.detached", "info"
    CLONE_DETACH_FAILED = "clone.detach.failed", "error"
    CLONE_SOURCE_SKIPPED = "clone.source.skipped", "warning"
    TWO_PHASE_RECOVERED = "two_phase.recovered", "info"
    TWO_PHASE_RECOVERY_FAILED = "two_phase.recovery.failed", "error"
    PROTOCOL_PANIC = "protocol.panic", "critical"
