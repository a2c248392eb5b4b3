"""Each rule that prevents a compaction from losing rows or work is needed.

Each test takes one rule out of the code and names the rows of docs/reference/protocol.md 16.4 that detect it. Every one
of these rows must fail within the default seeds.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shale.compaction import validation
from shale.testing.simulation import STORE_VARIABLE
from shale.types import CasMode, Checkpoint, Compactions, CompactionStatus, ManifestId, Ulid
from shale_compactor.coordinator import coordinator, state_writer
from shale_compactor.coordinator.state import CoordinatorState
from shale_compactor.coordinator.state_writer import store_compactions
from shale_compactor.execution import executor
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.run_writer import RunWriter
from shale_compactor.planning import commit, merge_state, reclaim, startup
from shale_compactor.planning import round as rounds
from shale_compactor.worker import claims
from shale_compactor.worker.worker import Worker
from tests.simulation.compactor import test_beside_gc as collector
from tests.simulation.compactor import test_cancel as cancelling
from tests.simulation.compactor import test_coordinator as coordination
from tests.simulation.compactor import test_execution as execution
from tests.simulation.compactor import test_segments as segments
from tests.simulation.compactor import test_submissions as submissions
from tests.simulation.compactor import test_worker as work
from tests.simulation.mutations import MUTATION_SEEDS, seed_that_fails, without_rule

S = CompactionStatus
Scenario = Callable[[int], object]
ONE_BY_ONE = submissions.test_every_invalid_submission_fails_by_its_rule
OVERLAPPING = submissions.test_overlapping_and_valid_submissions_lose_no_row
INHERITED = submissions.test_a_foreign_job_without_the_oldest_l0_is_failed
REUSED = submissions.test_one_of_two_jobs_with_one_run_id_is_applied
LISTED_TWICE = submissions.test_an_l0_listed_twice_is_promoted_and_its_jobs_fail
THIS_MOMENT = submissions.test_a_submission_of_a_flushed_l0_is_accepted
DRAINS = segments.test_a_drain_that_leaves_older_data_fails


def found_by(*rows: Scenario) -> None:
    """Each of these defects fails within ``MUTATION_SEEDS`` seeds.

    With two-phase creates a process sends more requests, so fewer of the drawn ones are in the middle of a job.
    """
    two_phase = os.environ.get(STORE_VARIABLE) == CasMode.TWO_PHASE
    for each in rows:
        seed_that_fails(each, MUTATION_SEEDS * (5 if two_phase else 1))


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("V1", [ONE_BY_ONE]),
        ("V4", [ONE_BY_ONE]),
        ("V5", [ONE_BY_ONE]),
        ("V7", [ONE_BY_ONE, INHERITED]),
        ("V8", [DRAINS]),
        ("V10", [ONE_BY_ONE]),
        ("V11", [ONE_BY_ONE]),
        ("V12", [OVERLAPPING, REUSED]),
        ("V13", [LISTED_TWICE]),
    ],
)
def test_a_rule_of_validation_is_gone(monkeypatch: pytest.MonkeyPatch, rule: str, rows: list[Scenario]) -> None:
    without_rule(monkeypatch, validation, rule)
    found_by(*rows)


def test_the_manifest_is_read_before_the_compactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission may name objects that are newer than the manifest it is validated against."""

    async def reversed_order(view: CoordinatorState, wanted: Any = None) -> bool:
        await view.manifest.refresh()
        await view.compactions.refresh()
        view.merge()
        return wanted is None or bool(wanted(view.local))

    monkeypatch.setattr(coordinator, "refresh_state", reversed_order)
    found_by(THIS_MOMENT)


def test_the_compactions_are_written_before_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death between the writes leaves a job Completed without a result."""

    async def reversed_order(
        view: CoordinatorState, manifest: Any, compactions: Any, env: Any, **lifetime: float
    ) -> None:
        view.local = compactions
        await store_compactions(view)
        if manifest is not view.manifest.value:
            await state_writer.commit_manifest(
                view.manifest, manifest, env, lifetime_s=lifetime["checkpoint_lifetime_s"]
            )

    monkeypatch.setattr(coordinator, "write_both", reversed_order)
    found_by(
        coordination.test_a_coordinator_killed_after_any_request_loses_and_doubles_no_row,
        coordination.test_a_kill_between_the_two_writes_of_a_commit_applies_the_job_once,
        collector.test_a_gc_pass_between_each_pair_of_writes_deletes_nothing_live,
    )


def test_a_commit_sweeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_SWEPT", ())
    found_by(REUSED)


def test_without_the_check_that_a_result_is_committed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commit, startup):
        monkeypatch.setattr(module, "is_committed", lambda _manifest, _entry: False)
    found_by(coordination.test_a_kill_between_the_two_writes_of_a_commit_applies_the_job_once)


def test_a_rebuilt_source_is_not_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "is_overtaken", lambda _manifest, _entry: False)
    found_by(coordination.test_a_half_committed_job_beside_a_rewrite_of_its_run_is_applied_once)


def test_inputs_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_checkpoint(_manifest: Any, env: Any, **_: Any) -> Checkpoint:
        return Checkpoint(id=env.ids.uuid(), manifest_id=ManifestId(0))

    monkeypatch.setattr(state_writer, "create_checkpoint", no_checkpoint)
    found_by(coordination.test_a_commit_survives_twenty_conflicting_flushes_with_one_checkpoint)


def test_every_attempt_makes_a_checkpoint_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "_still_pins", lambda *_: False)
    found_by(coordination.test_a_commit_survives_twenty_conflicting_flushes_with_one_checkpoint)


def test_outputs_are_dated_by_the_workers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RunWriter.__init__

    def undated(writer: RunWriter, *args: Any, **kwargs: Any) -> None:
        original(writer, *args, **{**kwargs, "not_before_ms": 0})

    monkeypatch.setattr(RunWriter, "__init__", undated)
    found_by(collector.test_outputs_of_a_worker_whose_clock_lags_are_not_collected)


def test_the_heir_takes_the_barrier_of_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JobProgress.__init__

    def fresh_barrier(progress: JobProgress, **kwargs: Any) -> None:
        original(progress, **kwargs)
        progress.retention_min_seq = kwargs["retention_min_seq"]

    monkeypatch.setattr(JobProgress, "__init__", fresh_barrier)
    found_by(execution.test_a_resumed_job_keeps_the_snapshot_barrier_of_its_plan)


def test_the_heir_begins_at_the_first_row_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "ResumeSource", lambda source, *_: source)
    found_by(execution.test_a_job_resumed_inside_one_key_keeps_every_version_once)


def test_tombstones_are_dropped_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    original = executor.RetentionPolicy

    def careless(**kwargs: Any) -> Any:
        return original(**{**kwargs, "drop_tombstones": True})

    monkeypatch.setattr(executor, "RetentionPolicy", careless)
    found_by(execution.test_tombstones_are_dropped_only_where_nothing_older_exists)


@pytest.mark.parametrize("late", [-1, 1])
def test_rows_expire_one_tick_off(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    original = executor.RetentionPolicy

    def off_by_one(**kwargs: Any) -> Any:
        return original(**{**kwargs, "now_tick": kwargs["now_tick"] + late})

    monkeypatch.setattr(executor, "RetentionPolicy", off_by_one)
    found_by(execution.test_rows_expire_at_their_tick)


def test_a_worker_looks_only_at_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """SlateDB has this defect: a Failed entry with a worker would become Compacted."""

    def owns(entry: Any, worker_id: str) -> bool:
        return entry is not None and entry.worker is not None and entry.worker.worker_id == worker_id

    monkeypatch.setattr(claims, "owns", owns)
    found_by(work.test_a_failed_job_that_names_its_worker_stays_failed)


def test_a_worker_claims_what_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(this: Worker, compactions: Compactions, _just_claimed: int) -> set[Ulid]:
        return {entry.id for entry in claims.claimable(compactions, (), this.options.max_concurrent_compactions)}

    monkeypatch.setattr(Worker, "_claimable", everything)
    monkeypatch.setattr(Worker, "_stop_lost_jobs", lambda _worker, _compactions: None)
    found_by(work.test_a_frozen_worker_that_reclaims_its_job_runs_it_once)


def test_reclaiming_throws_progress_away(monkeypatch: pytest.MonkeyPatch) -> None:
    original = reclaim.plan_reclaim

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        plan = original(*args, **kwargs)
        taken = {entry.id for entry in plan.reclaimed}
        entries = (replace(entry, ctx=None) if entry.id in taken else entry for entry in plan.compactions.entries)
        return replace(plan, compactions=replace(plan.compactions, entries=tuple(entries)))

    monkeypatch.setattr(rounds, "plan_reclaim", forgetful)
    found_by(work.test_a_worker_killed_after_any_request_loses_no_row)


def test_an_older_copy_brings_a_finished_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(merge_state._ADOPTED, S.FAILED, frozenset(S))
    found_by(work.test_a_heartbeat_with_an_older_copy_does_not_revive_a_finished_job)


def test_a_claim_that_was_given_back_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = merge_state._ADOPTED[S.SCHEDULED] - {S.SCHEDULED}
    monkeypatch.setitem(merge_state._ADOPTED, S.SCHEDULED, known)
    found_by(execution.test_a_worker_without_the_merge_operator_loses_no_operand)


def test_a_cancellation_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    for status in (S.SUBMITTED, S.SCHEDULED, S.RUNNING):
        monkeypatch.setitem(merge_state._ADOPTED, status, merge_state._ADOPTED[status] - {S.FAILED})
    found_by(cancelling.test_a_job_is_cancelled_while_others_write)


def test_sources_that_vanished_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "_sourceless", lambda _manifest, _compactions: [])
    found_by(segments.test_a_job_whose_segment_vanished_fails)


def test_submissions_are_scheduled_without_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale_compactor.planning.admission.plan_trivial_move", lambda views: views)
    found_by(execution.test_ssts_with_disjoint_ranges_are_moved_without_a_rewrite)
