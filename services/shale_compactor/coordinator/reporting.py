"""Log lines and metrics of the coordinator (docs/how-to/monitor.md and docs/reference/logs.md)."""

from collections.abc import Sequence

from shale.compaction.entries import with_status
from shale.compaction.specs import describe, name_of_segment, size_estimate_bytes
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, Compactions, CompactionSpec, CompactionStatus, DrainSpec, Epoch, Manifest
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.state_writer import PromotedTree
from shale_compactor.planning.merge_state import MergedState
from shale_compactor.planning.step import PlanningStep, RefusedProposal

log = get_logger("compactor")


class CoordinatorReporter:
    """Logs and counts each event once."""

    def __init__(self, metrics: Metrics) -> None:
        self._epoch = metrics.gauge("slatedb_compactor_epoch").set
        self._heartbeat_timeout = metrics.gauge("slatedb_compactor_worker_heartbeat_timeout_seconds").set
        self._committed_at = metrics.gauge("slatedb_compactor_last_success_timestamp_seconds").set
        self._reclaimed = metrics.counter("slatedb_compactor_jobs_reclaimed_total").inc
        self._fenced = metrics.counter("slatedb_fenced_total", component="compactor").inc
        self._rejected = metrics.counter(
            "slatedb_compaction_errors_total", error_type="validation", retryable="false"
        ).inc
        self._inflight_bytes = metrics.gauge("slatedb_compactor_inflight_input_bytes").set
        self._backlog_jobs = metrics.gauge("slatedb_compactor_backlog_jobs").set
        self._backlog_bytes = metrics.gauge("slatedb_compactor_backlog_bytes").set
        self._waiting_for_commit = metrics.gauge("slatedb_compaction_phase", phase="commit").set
        self._promoted_l0 = metrics.counter("slatedb_compactor_l0_promotions_total").inc
        self._refused: frozenset[CompactionSpec] = frozenset()

    def configured(self, options: CoordinatorOptions) -> None:
        """Set the gauges of the options, against which alerts compare."""
        self._heartbeat_timeout(options.worker_heartbeat_timeout_s)

    def leadership_acquired(self, epoch: Epoch) -> None:
        """Report that this coordinator claimed the epoch."""
        self._epoch(epoch)

    def fenced(self, epoch: Epoch, error: Exception) -> None:
        """Report that another coordinator claimed the epoch; this one has stopped writing."""
        self._fenced()
        log.warning(Event.COMPACTOR_FENCED, epoch=epoch, error=error)

    def merged(self, merged: MergedState) -> None:
        """Report entries of the stored version: cancelled ones, and ones with an invalid new status."""
        for entry in merged.cancelled:
            _log_entry(Event.COMPACTION_CANCELLED, entry)
        for entry in merged.ignored:
            log.error(Event.COMPACTION_REMOTE_IGNORED, compaction_id=str(entry.id), status=entry.status.name.lower())

    def promoted(self, trees: Sequence[PromotedTree]) -> None:
        """Report trees of a union made by SlateDB whose L0s were promoted to runs."""
        for tree in trees:
            self._promoted_l0(tree.l0_count)
            log.warning(Event.COMPACTION_L0_PROMOTED, segment=name_of_segment(tree.prefix), count=tree.l0_count)

    def decided(self, step: PlanningStep, now: Compactions, now_ms: int) -> None:
        """Report a step after it was stored; ``now`` is the local state after the write."""
        for entry in step.reclaimed:
            if _is_reclaimed(entry, now):
                self._reclaimed()
                _log_entry(Event.COMPACTION_RECLAIMED, entry, worker=_worker_of(entry))
        for entry in step.proposed:
            _log_entry(Event.COMPACTION_SUBMITTED, entry)
        for entry in step.committed:
            self._committed_at(now_ms / 1000)
            _log_entry(Event.COMPACTION_COMMITTED, entry, worker=_worker_of(entry))
        for rejection in step.rejected:
            self._rejected()
            _log_rejected(
                rejection.entry.spec, rejection.rule, rejection.message, compaction_id=str(rejection.entry.id)
            )
        self._report_refused(step.refused)

    def observe(self, manifest: Manifest, compactions: Compactions) -> None:
        """Set the gauges that describe all active jobs.  A drain has no worker, so it is never in the backlog."""
        active = [entry for entry in compactions.entries if entry.is_active]
        unclaimed = with_status(compactions, CompactionStatus.SCHEDULED)
        backlog = [entry.spec for entry in unclaimed if not isinstance(entry.spec, DrainSpec)]
        self._inflight_bytes(sum(size_estimate_bytes(manifest, entry.spec) for entry in active))
        self._backlog_jobs(len(backlog))
        self._backlog_bytes(sum(size_estimate_bytes(manifest, spec) for spec in backlog))
        self._waiting_for_commit(len(with_status(compactions, CompactionStatus.COMPACTED)))

    def _report_refused(self, refused: tuple[RefusedProposal, ...]) -> None:
        # A stateless policy repeats an invalid proposal in each round: report it only in the first.
        for refusal in refused:
            if refusal.spec not in self._refused:
                self._rejected()
                _log_rejected(refusal.spec, refusal.rule, refusal.message)
        self._refused = frozenset(refusal.spec for refusal in refused)


def _is_reclaimed(before: Compaction, now: Compactions) -> bool:
    """Return ``False`` if a heartbeat was stored before the decision, so that the worker keeps its job."""
    entry = now.get(before.id)
    return (
        entry is None
        or entry.worker is None
        or before.worker is None
        or entry.worker.worker_id != before.worker.worker_id
    )


def _worker_of(entry: Compaction) -> str | None:
    return entry.worker.worker_id if entry.worker is not None else None


def _log_entry(event: Event, entry: Compaction, **fields: object) -> None:
    log.info(event, compaction_id=str(entry.id), spec=describe(entry.spec), **fields)


def _log_rejected(spec: CompactionSpec, rule: str, message: str, **fields: object) -> None:
    log.error(Event.COMPACTION_REJECTED, **fields, spec=describe(spec), rule=rule, error=message)
