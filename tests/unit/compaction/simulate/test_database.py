"""The simulated database: a real manifest whose SSTs have simulated rows."""

import pytest

from shale.compaction.simulate.database import START_MS, SimulatedDatabase
from shale.compaction.simulate.rows import EMPTY, NEVER
from shale.compaction.simulate.workload import Workload
from shale.errors import InvalidCompaction
from shale.types import RunId, TieredSpec
from tests.unit.compaction.simulate.harness import rows, shown
from tests.unit.compactor.values import S

LOAD = Workload(key_bytes=16, value_bytes=100, l0_bytes=1_360, rate_bytes_s=136, duration_s=100)
ROW, TOMBSTONE = 136, 36
A, B, GONE = (1, NEVER, False), (2, NEVER, False), (1, NEVER, True)


class Proposes:
    """A policy with fixed proposals."""

    def __init__(self, *specs: TieredSpec) -> None:
        self._specs = specs

    def plan(self, manifest, compactions):
        return self._specs


def of_l0s(database: SimulatedDatabase, *indexes: int, to: int) -> TieredSpec:
    views = tuple(database.tree.l0[index].id for index in indexes)
    return TieredSpec(l0_view_ids=views, destination=RunId(to))


def of_runs(*runs: int, to: int) -> TieredSpec:
    return TieredSpec(sorted_runs=tuple(map(RunId, runs)), destination=RunId(to))


def test_initial_rows_are_one_run():
    database = SimulatedDatabase(LOAD, rows(A, B))
    (run,) = database.tree.compacted
    assert (run.id, len(run.ssts), database.tree.l0, database.stored_bytes) == (0, 1, (), 2 * ROW)
    assert (database.manifest.last_l0_clock_tick, run.ssts[0].sst.id.ms) == (START_MS, START_MS)
    assert SimulatedDatabase(LOAD, EMPTY).tree.is_empty


def test_a_flush_is_the_newest_l0_and_sets_the_clock():
    database = SimulatedDatabase(LOAD, EMPTY)
    assert database.flush(rows(A, B), 10.5) == 2 * ROW
    assert database.flush(rows(GONE, B), 10.5) == ROW + TOMBSTONE
    assert database.manifest.last_l0_clock_tick == START_MS + 10_500
    assert [view.sst.id.ms for view in database.tree.l0] == [START_MS + 10_500] * 2
    assert [view.sst.estimated_size_bytes for view in database.tree.l0] == [ROW + TOMBSTONE, 2 * ROW]
    assert len({view.sst.id for view in database.tree.l0}) == 2
    assert database.stored_bytes == 3 * ROW + TOMBSTONE


def test_a_simulated_row_has_the_size_of_those_that_it_represents():
    load = Workload(key_bytes=16, value_bytes=100, l0_bytes=1_360, rate_bytes_s=136, duration_s=100, rows_max=40)
    database = SimulatedDatabase(load, EMPTY)
    assert database.flush(rows(A, B, (3, NEVER, True)), 1.0) == round(2.5 * (2 * ROW + TOMBSTONE))


def test_jobs_are_started_up_to_the_capacity():
    database = SimulatedDatabase(LOAD, rows(A))
    database.flush(rows(B), 1.0)
    wanted = of_runs(0, to=0), of_l0s(database, 0, to=1)
    (first,) = database.schedule(Proposes(*wanted), 1, 2.0)
    assert (first.spec, first.status, first.id.ms) == (wanted[0], S.RUNNING, START_MS + 2_000)
    assert (database.active, database.compactions.entries) == (1, (first,))
    assert database.schedule(Proposes(wanted[1]), 1, 2.0) == []
    assert database.schedule(Proposes(wanted[1]), 0, 2.0) == []
    (second,) = database.schedule(Proposes(wanted[1]), 2, 3.0)
    assert (second.spec, database.active) == (wanted[1], 2)


def test_impossible_proposals_are_not_started():
    database = SimulatedDatabase(LOAD, rows(A))
    database.flush(rows(B), 1.0)
    database.flush(rows(B), 2.0)
    newest_only = of_l0s(database, 0, to=1)
    assert database.schedule(Proposes(newest_only), 4, 3.0) == []
    both, again = of_l0s(database, 0, 1, to=1), of_runs(0, to=0)
    started = database.schedule(Proposes(both, again, of_runs(0, to=0), newest_only), 4, 3.0)
    assert [entry.spec for entry in started] == [both, again]


def test_inputs_and_output_of_a_job():
    database = SimulatedDatabase(LOAD, rows(A, B, (3, 5.0, False)))
    database.flush(rows(GONE), 4.0)
    (entry,) = database.schedule(
        Proposes(TieredSpec(l0_view_ids=(database.tree.l0[0].id,), sorted_runs=(RunId(0),), destination=RunId(0))),
        1,
        4.0,
    )
    assert database.input_bytes(entry) == [TOMBSTONE, 3 * ROW]
    assert shown(database.output_of(entry)) == [B, (3, 5.0, False)]
    database.flush(rows(B), 5.0)
    assert shown(database.output_of(entry)) == [B], "the tick of the last flush decides about expiry"


def test_before_the_first_flush_the_clock_is_at_zero():
    database = SimulatedDatabase(LOAD, rows((1, 0.5, False), (2, 0.0, False)))
    (entry,) = database.schedule(Proposes(of_runs(0, to=0)), 1, 0.0)
    assert shown(database.output_of(entry)) == [(1, 0.5, False)]


def test_the_first_run_has_no_tombstones():
    database = SimulatedDatabase(LOAD, EMPTY)
    database.flush(rows(GONE, B), 1.0)
    (entry,) = database.schedule(Proposes(of_l0s(database, 0, to=0)), 1, 1.0)
    assert shown(database.output_of(entry)) == [B]


def test_tombstones_are_dropped_in_the_oldest_run_only():
    database = SimulatedDatabase(LOAD, rows(A))
    database.flush(rows(GONE), 1.0)
    (entry,) = database.schedule(Proposes(of_l0s(database, 0, to=1)), 1, 1.0)
    assert shown(database.output_of(entry)) == [GONE]
    assert database.commit(entry, database.output_of(entry), 2.0) == TOMBSTONE
    (both,) = database.schedule(Proposes(of_runs(1, 0, to=0)), 1, 3.0)
    assert shown(database.output_of(both)) == []
    assert database.commit(both, database.output_of(both), 4.0) == 0
    assert [(run.id, run.ssts) for run in database.tree.compacted] == [(0, ())]
    assert database.stored_bytes == 0


def test_a_commit_replaces_the_sources_and_frees_the_capacity():
    database = SimulatedDatabase(LOAD, rows(A))
    database.flush(rows(B), 1.0)
    job, other = database.schedule(Proposes(of_l0s(database, 0, to=1), of_runs(0, to=0)), 2, 1.0)
    assert database.commit(job, database.output_of(job), 3.0) == ROW
    assert [run.id for run in database.tree.compacted] == [1, 0]
    assert database.tree.compacted[0].ssts[0].sst.id.ms == START_MS + 3_000
    assert database.tree.l0 == ()
    assert [(entry.id, entry.status) for entry in database.compactions.entries] == [
        (job.id, S.COMPLETED),
        (other.id, S.RUNNING),
    ]
    assert database.commit(other, database.output_of(other), 4.0) == ROW
    assert [entry.id for entry in database.compactions.entries] == [other.id]
    assert database.active == 0
    with pytest.raises(InvalidCompaction, match="V4"):
        database.commit(job, rows(B), 5.0)
