"""A simulation of one minute, computed by hand: each L0 has ten rows, and a job merges two L0s in ten seconds."""

import math
from dataclasses import replace

import pytest

from shale.compaction.simulate.compactor_model import CompactorModel, job_requests
from shale.compaction.simulate.result import SimulationResult, SimulationSample
from shale.compaction.simulate.simulation import simulate
from shale.compaction.simulate.workload import Keys, RecordedFlush, Workload
from shale.compaction.specs import fresh_run_id
from shale.types import TieredSpec

L0 = 10 * 136
LOAD = Workload(rate_bytes_s=136, l0_bytes=L0, duration_s=60.0, overwrite_share=0.0)
MODEL = CompactorModel(jobs=1, throughput_bytes_s=2 * L0 / 10, poll_interval_s=4.0)


class Pairs:
    """Merges the two oldest L0s into a new run."""

    def plan(self, manifest, compactions):
        if len(manifest.tree.l0) >= 2:
            views = tuple(view.id for view in manifest.tree.l0[-2:])
            yield TieredSpec(l0_view_ids=views, destination=fresh_run_id(manifest, compactions))


def sample(at_s: float, l0: int, runs: int, views: int, live: int, compacted: int = 0, *, stalled: bool = False):
    """Return a sample; sizes are in L0s."""
    return SimulationSample(float(at_s), l0, runs, views * L0, live * L0, compacted * L0, stalled)


def test_a_minute():
    """Flushes at 10, 20, … 60; polls at the next multiple of 4; jobs from 24 to 34 and from 44 to 54."""
    found = simulate("pairs", Pairs(), LOAD, MODEL)
    assert found == SimulationResult(
        policy="pairs",
        duration_s=60.0,
        written_bytes=6 * L0,
        flushed_bytes=6 * L0,
        compacted_bytes=4 * L0,
        read_bytes=4 * L0,
        write_amplification=10 / 6,
        # Sources 0, 1, 2, 3, 2, 3, 4, 3 from the times 0, 10, 20, 30, 34, 40, 50, 54 on.
        read_amplification=pytest.approx((10 + 20 + 12 + 12 + 30 + 16 + 18) / 60),
        read_amplification_max=4,
        space_amplification=1.0,
        space_amplification_max=1.0,
        stall_s=0.0,
        jobs=2,
        requests=2 * job_requests([L0, L0], 2 * L0, MODEL.max_sst_bytes),
        left_l0=2,
        left_runs=2,
        samples=(
            sample(0, 0, 0, 0, 0),
            sample(10, 1, 0, 1, 1),
            sample(12, 1, 0, 1, 1),
            sample(20, 2, 0, 2, 2),
            sample(24, 2, 0, 2, 2),
            sample(30, 3, 0, 3, 3),
            sample(32, 3, 0, 3, 3),
            sample(34, 1, 1, 3, 3, 2),
            sample(36, 1, 1, 3, 3, 2),
            sample(40, 2, 1, 4, 4, 2),
            sample(44, 2, 1, 4, 4, 2),
            sample(50, 3, 1, 5, 5, 2),
            sample(52, 3, 1, 5, 5, 2),
            sample(54, 1, 2, 5, 5, 4),
            sample(56, 1, 2, 5, 5, 4),
            sample(60, 2, 2, 6, 6, 4),
            sample(60, 2, 2, 6, 6, 4),
        ),
    )


def test_flushes_wait_while_there_are_two_l0s():
    """Those of 30 and 50 wait until the jobs end, at 34 and 54."""
    found = simulate("pairs", Pairs(), LOAD, replace(MODEL, l0_max_ssts=2))
    assert found.stall_s == pytest.approx(8.0)
    assert found.flushed_bytes == 6 * L0
    assert found.read_amplification == pytest.approx((10 + 20 + 8 + 12 + 30 + 12 + 18) / 60)
    assert [each.at_s for each in found.samples if each.is_stalled] == [30.0, 32.0, 50.0, 52.0]


def test_rows_that_wait_do_not_count():
    """Without merges, two of six flushes are stored; the third is due at 30."""
    found = simulate("none", Never(), LOAD, replace(MODEL, l0_max_ssts=2))
    assert (found.stall_s, found.left_l0, found.flushed_bytes, found.written_bytes) == (30.0, 2, 2 * L0, 6 * L0)
    assert found.samples[-1] == sample(60, 2, 0, 2, 2, stalled=True)
    assert (found.read_amplification, found.jobs, found.requests) == ((10 + 40 * 2) / 60, 0, 0)


class Never:
    def plan(self, manifest, compactions):
        return ()


def test_waiting_flushes_keep_their_order():
    """At 34 the flush of 30 is the newest L0; each flush overwrites all ten keys of the run at the start."""
    load = replace(LOAD, initial_keys=10, overwrite_share=1.0, keys=Keys.SEQUENTIAL)
    found = simulate("pairs", Pairs(), load, MODEL)
    assert (found.compacted_bytes, found.read_bytes, found.flushed_bytes) == (2 * L0, 4 * L0, 6 * L0)
    assert (found.left_l0, found.left_runs) == (2, 3)
    # Stored L0s 1, 2, 3, 4, 3, 4, 5, 4 from the times 0, 10, 20, 30, 34, 40, 50, 54 on; one is live.
    assert found.space_amplification == pytest.approx((10 + 20 + 30 + 16 + 18 + 40 + 20 + 24) / 60)
    assert found.space_amplification == pytest.approx(found.read_amplification)
    assert found.space_amplification_max == 5.0
    assert {each.live_bytes for each in found.samples} == {L0}


def test_expired_rows_take_space():
    """With a lifetime of 15 seconds, a row written at 10 is live at 20 and not at 30."""
    found = simulate("none", Never(), replace(LOAD, ttl_s=15.0), MODEL)
    assert [each.live_bytes / L0 for each in found.samples if each.at_s % 10 == 0] == [0, 1, 2, 2, 2, 2, 2, 2]
    assert [(each.at_s, each.live_bytes / L0) for each in found.samples][3:6] == [(20, 2), (24, 2), (30, 2)]


def test_space_is_measured_while_rows_are_live():
    found = simulate("none", Never(), replace(LOAD, delete_share=1.0), MODEL)
    assert (found.space_amplification, found.space_amplification_max) == (1.0, 1.0)
    assert {each.live_bytes for each in found.samples} == {0.0}
    assert found.samples[-1].stored_bytes == 6 * 36


@pytest.mark.parametrize(("end_s", "left_runs", "jobs"), [(63.9, 1, 2), (64.0, 2, 3)])
def test_jobs_end_in_time_or_not_at_all(end_s, left_runs, jobs):
    """Jobs of twenty seconds, one at a time: from 24 to 44, from 44 to 64, from 64 on."""
    slow = replace(MODEL, throughput_bytes_s=2 * L0 / 20)
    found = simulate("pairs", Pairs(), replace(LOAD, duration_s=end_s), slow)
    assert (found.left_runs, found.jobs) == (left_runs, jobs)


def test_the_coordinator_polls_after_a_flush_and_when_a_job_ends():
    rare = replace(MODEL, poll_interval_s=100.0)
    assert simulate("pairs", Pairs(), LOAD, rare).jobs == 0
    once = simulate("pairs", Pairs(), replace(LOAD, duration_s=149.0), replace(rare, throughput_bytes_s=math.inf))
    assert once.jobs == 5, "at 100 and at once after each end: ten L0s in five pairs"
    quick = replace(LOAD, rate_bytes_s=40 * 136, duration_s=0.7)
    often = simulate("pairs", Pairs(), quick, replace(MODEL, poll_interval_s=0.1, throughput_bytes_s=math.inf))
    assert often.jobs == 1, "flushes at 0.25 and 0.5, then a poll at 0.6"


def test_the_smallest_live_rows_count():
    """One key of one byte is written twice."""
    load = Workload(recorded=(RecordedFlush(0.0, 1, 1), RecordedFlush(10.0, 1, 1)), overwrite_share=1.0)
    found = simulate("none", Never(), load, MODEL)
    assert (found.space_amplification, found.space_amplification_max) == (1.0, 2.0)


def test_samples_are_taken_at_four_hundred_times():
    """A flush each second of five hundred: at 0, 2, 4, …, since an interval has one and a quarter seconds."""
    load = replace(LOAD, l0_bytes=136, duration_s=500.0)
    found = simulate("none", Never(), load, CompactorModel(l0_max_ssts=1_000, poll_interval_s=1_000.0))
    assert [each.at_s for each in found.samples] == [*(2.0 * n for n in range(251)), 500.0]
    assert found.read_amplification_max == 500
