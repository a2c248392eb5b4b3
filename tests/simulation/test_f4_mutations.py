"""Every rule that keeps a compaction from losing rows or work is missed when it is gone, within the default seeds.

Each test takes one rule out of the real code and names the rows of docs/protocol.md 16.4 that find it; every one of
them has to.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shale.compaction import validation
from shale.types import Checkpoint, Compactions, CompactionStatus, ManifestId, Ulid
from shale_compactor.coordinator import coordinator, manifest_commit
from shale_compactor.coordinator.state_view import StateView
from shale_compactor.coordinator.writing import store_compactions
from shale_compactor.execution import executor
from shale_compactor.execution.output import RunWriter
from shale_compactor.execution.progress import JobProgress
from shale_compactor.states import commit, merge_state, reclaim, startup
from shale_compactor.states import round as rounds
from shale_compactor.worker import claims
from shale_compactor.worker.worker import Worker
from tests.simulation import test_f4_cancel as cancelling
from tests.simulation import test_f4_collector as collector
from tests.simulation import test_f4_coordinator as coordination
from tests.simulation import test_f4_execution as execution
from tests.simulation import test_f4_segments as segments
from tests.simulation import test_f4_submissions as submissions
from tests.simulation import test_f4_worker as work
from tests.simulation.conftest import DEFAULT_SEEDS
from tests.simulation.mutants import first_seed_that_fails, without_rule

S = CompactionStatus
Scenario = Callable[[int], object]
ONE_BY_ONE = submissions.test_f4_11_every_wrong_submission_fails_by_its_rule
OVERLAPPING = submissions.test_f4_11_overlapping_and_valid_submissions
INHERITED = submissions.test_f4_11b_a_foreign_coordinator_scheduled_l0s_that_are_not_the_oldest
REUSED = submissions.test_f4_12_a_run_id_is_used_again
LISTED_TWICE = submissions.test_f4_11_an_l0_that_is_listed_twice
THIS_MOMENT = submissions.test_f4_11_a_valid_submission_names_an_l0_of_this_moment
DRAINS = segments.test_f4_13_a_drain_that_leaves_something_older_fails


def found_by(*rows: Scenario) -> None:
    """Each of these rows fails within the seeds of the default suite."""
    for each in rows:
        first_seed_that_fails(each, DEFAULT_SEEDS)


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
    """What a submission names may be younger than the manifest by which it is judged."""

    async def reversed_order(view: StateView, wanted: Any = None) -> bool:
        await view.manifest.refresh()
        await view.compactions.refresh()
        view.merge()
        return wanted is None or bool(wanted(view.local))

    monkeypatch.setattr(coordinator, "refresh_view", reversed_order)
    found_by(THIS_MOMENT)


def test_the_compactions_are_written_before_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death in between, and a job is Completed whose result nobody has."""

    async def reversed_order(view: StateView, manifest: Any, compactions: Any, env: Any, **lifetime: float) -> None:
        view.local = compactions
        await store_compactions(view)
        if manifest is not view.manifest.value:
            await manifest_commit.commit_manifest(
                view.manifest, manifest, env, lifetime_s=lifetime["checkpoint_lifetime_s"]
            )

    monkeypatch.setattr(coordinator, "write_both", reversed_order)
    found_by(
        coordination.test_f4_1_the_coordinator_dies_after_any_request,
        coordination.test_f4_9_death_between_the_two_writes_of_a_commit,
        collector.test_f4_27_a_sweep_between_each_pair_of_writes,
    )


def test_a_commit_sweeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_SWEPT", ())
    found_by(REUSED)


def test_nobody_asks_whether_a_result_is_committed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commit, startup):
        monkeypatch.setattr(module, "is_committed", lambda _manifest, _entry: False)
    found_by(coordination.test_f4_9_death_between_the_two_writes_of_a_commit)


def test_a_rebuilt_source_is_not_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "is_overtaken", lambda _manifest, _entry: False)
    found_by(coordination.test_f4_9b_the_same_beside_a_rewrite_of_the_same_run)


def test_inputs_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_checkpoint(_manifest: Any, env: Any, **_: Any) -> Checkpoint:
        return Checkpoint(id=env.ids.uuid(), manifest_id=ManifestId(0))

    monkeypatch.setattr(manifest_commit, "create_checkpoint", no_checkpoint)
    found_by(coordination.test_f4_10_a_commit_conflicts_with_twenty_flushes)


def test_every_attempt_makes_a_checkpoint_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_commit, "_still_pins", lambda *_: False)
    found_by(coordination.test_f4_10_a_commit_conflicts_with_twenty_flushes)


def test_outputs_are_dated_by_the_workers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RunWriter.__init__

    def undated(writer: RunWriter, *args: Any, **kwargs: Any) -> None:
        original(writer, *args, **{**kwargs, "not_before_ms": 0})

    monkeypatch.setattr(RunWriter, "__init__", undated)
    found_by(collector.test_f4_21_the_worker_is_ten_minutes_behind)


def test_the_heir_takes_the_barrier_of_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JobProgress.__init__

    def fresh_barrier(progress: JobProgress, **kwargs: Any) -> None:
        original(progress, **kwargs)
        progress.retention_min_seq = kwargs["retention_min_seq"]

    monkeypatch.setattr(JobProgress, "__init__", fresh_barrier)
    found_by(execution.test_f4_17_the_snapshot_barrier_moves_while_a_job_runs)


def test_the_heir_begins_at_the_first_row_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "SkipThrough", lambda source, *_: source)
    found_by(execution.test_f4_15_a_job_is_resumed_inside_one_key)


def test_tombstones_are_dropped_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    original = executor.Retention

    def careless(**kwargs: Any) -> Any:
        return original(**{**kwargs, "drop_tombstones": True})

    monkeypatch.setattr(executor, "Retention", careless)
    found_by(execution.test_f4_18_tombstones_go_only_where_nothing_older_exists)


@pytest.mark.parametrize("late", [-1, 1])
def test_rows_expire_one_tick_off(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    original = executor.Retention

    def off_by_one(**kwargs: Any) -> Any:
        return original(**{**kwargs, "now_tick": kwargs["now_tick"] + late})

    monkeypatch.setattr(executor, "Retention", off_by_one)
    found_by(execution.test_f4_19_rows_expire_at_their_tick)


def test_a_worker_looks_only_at_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """SlateDB does: a Failed entry that kept its worker would become Compacted."""

    def owns(entry: Any, worker_id: str) -> bool:
        return entry is not None and entry.worker is not None and entry.worker.worker_id == worker_id

    monkeypatch.setattr(claims, "owns", owns)
    found_by(work.test_f4_3_a_job_that_failed_and_still_names_its_worker)


def test_a_worker_claims_what_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(this: Worker, compactions: Compactions, _just_claimed: int) -> set[Ulid]:
        return {entry.id for entry in claims.claimable(compactions, (), this.options.max_concurrent_compactions)}

    monkeypatch.setattr(Worker, "_claimable", everything)
    monkeypatch.setattr(Worker, "_stop_what_is_not_ours", lambda _worker, _compactions: None)
    found_by(work.test_f4_4_a_frozen_worker_claims_its_own_job_again)


def test_reclaiming_throws_progress_away(monkeypatch: pytest.MonkeyPatch) -> None:
    original = reclaim.plan_reclaim

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        plan = original(*args, **kwargs)
        taken = {entry.id for entry in plan.reclaimed}
        entries = (replace(entry, ctx=None) if entry.id in taken else entry for entry in plan.compactions.entries)
        return replace(plan, compactions=replace(plan.compactions, entries=tuple(entries)))

    monkeypatch.setattr(rounds, "plan_reclaim", forgetful)
    found_by(work.test_f4_2_a_worker_dies_after_any_request)


def test_an_older_copy_brings_a_finished_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(merge_state._ADOPTED, S.FAILED, frozenset(S))
    found_by(work.test_f4_28_an_older_copy_comes_back_with_a_heartbeat)


def test_a_claim_that_was_given_back_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = merge_state._ADOPTED[S.SCHEDULED] - {S.SCHEDULED}
    monkeypatch.setitem(merge_state._ADOPTED, S.SCHEDULED, known)
    found_by(execution.test_f4_20_a_worker_without_the_operator)


def test_a_cancellation_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    for status in (S.SUBMITTED, S.SCHEDULED, S.RUNNING):
        monkeypatch.setitem(merge_state._ADOPTED, status, merge_state._ADOPTED[status] - {S.FAILED})
    found_by(cancelling.test_a_job_is_cancelled_while_others_write)


def test_sources_that_vanished_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "_sourceless", lambda _manifest, _compactions: [])
    found_by(segments.test_f4_14_a_segment_vanishes_under_its_job)


def test_whatever_is_submitted_is_moved_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale_compactor.states.admission.plan_trivial_move", lambda views: views)
    found_by(execution.test_f4_25_ranges_that_touch_are_moved)
