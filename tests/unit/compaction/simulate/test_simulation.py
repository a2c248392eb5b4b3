"""The simulator against results computed by hand (docs/how-to/compaction-policies.md)."""

import math

import pytest

from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.policies.time_window import TimeWindow
from shale.compaction.simulate.compactor_model import CompactorModel, job_requests
from shale.compaction.simulate.rows import NEVER, merged
from shale.compaction.simulate.simulation import simulate
from shale.compaction.simulate.workload import Keys, RecordedFlush, Workload, recorded_flushes
from shale.errors import InvalidRequestError
from tests.unit.compaction.simulate.harness import rows, shown

MIB = 1024 * 1024
SMALL = {"rate_bytes_s": MIB, "l0_bytes": 8 * MIB, "duration_s": 3600.0, "rows_max": 20_000}
AT_ONCE = CompactorModel(throughput_bytes_s=math.inf)


class Nothing:
    """A policy that never compacts."""

    def plan(self, manifest, compactions):
        return []


def test_merging_keeps_the_newest_expires_and_drops_tombstones_at_the_end():
    newer, older = (
        rows((1, NEVER, True), (2, 50.0, False)),
        rows((1, NEVER, False), (2, NEVER, False), (3, 10.0, False)),
    )
    kept = merged([newer, older], tick_s=10.0, drop_tombstones=False)
    assert shown(kept) == [(1, NEVER, True), (2, 50.0, False), (3, NEVER, True)]
    assert shown(merged([newer, older], tick_s=10.0, drop_tombstones=True)) == [(2, 50.0, False)]


def test_without_compaction_nothing_is_written_twice_and_the_writer_stalls():
    found = simulate("none", Nothing(), Workload(**SMALL, overwrite_share=0.0), CompactorModel(l0_max_ssts=8))
    assert found.jobs == 0
    assert found.left_l0 == 8
    assert found.read_amplification_max == 8
    # The ninth flush is due after 72 seconds and waits for ever.
    assert found.stall_s == pytest.approx(3600 - 72)
    assert found.flushed_bytes == pytest.approx(8 * 8 * MIB, rel=0.01)


def test_rows_that_never_meet_are_written_once_per_merge():
    """64 L0s in merges of four: every row is in an L0 and then in runs of 4, of 16 and of 64."""
    load = Workload(rate_bytes_s=MIB, l0_bytes=8 * MIB, duration_s=8 * 64 + 7, rows_max=20_000, overwrite_share=0.0)
    found = simulate("size_tiered", SizeTiered(max_compaction_sources=4, include_size_threshold=1.5), load, AT_ONCE)
    assert found.write_amplification == pytest.approx(1 + 3, rel=0.05)
    assert found.space_amplification == pytest.approx(1, abs=0.01)
    assert found.stall_s == 0


def test_one_key_for_ever_makes_everything_small():
    found = simulate("leveled", Leveled(), Workload(**SMALL, overwrite_share=1.0), AT_ONCE)
    assert found.flushed_bytes < 0.03 * found.written_bytes  # one of 44 simulated rows per L0


def test_expired_windows_go_as_a_whole():
    """With a lifetime of ten minutes and windows of five, at most about twenty minutes of rows remain."""
    load = Workload(**SMALL, overwrite_share=0.0, ttl_s=600.0)
    policy = TimeWindow(window_s=300.0, default_ttl_s=600.0)
    found = simulate("time_window", policy, load, AT_ONCE)
    assert found.samples[-1].stored_bytes < 20 * 60 * MIB
    assert found.samples[-1].live_bytes == pytest.approx(600 * MIB, rel=0.05)
    without = simulate("size_tiered", SizeTiered(), load, AT_ONCE)
    assert found.space_amplification < without.space_amplification


def test_slow_jobs_cost_the_writer_time():
    load = Workload(**SMALL)
    quick = simulate("size_tiered", SizeTiered(), load, CompactorModel(throughput_bytes_s=16 * MIB))
    slow = simulate("size_tiered", SizeTiered(), load, CompactorModel(throughput_bytes_s=MIB, jobs=1))
    assert quick.stall_s == 0
    assert slow.stall_s > 600


@pytest.mark.parametrize("keys", list(Keys))
def test_the_same_seed_gives_the_same_result(keys):
    load = Workload(**SMALL, keys=keys, delete_share=0.1, initial_keys=1000)
    first, second = (simulate("leveled", Leveled(), load, CompactorModel()) for _ in range(2))
    assert first == second
    other = simulate("leveled", Leveled(), Workload(**SMALL, keys=keys, delete_share=0.1, seed=1), CompactorModel())
    assert other.compacted_bytes != first.compacted_bytes


def test_more_rows_change_little():
    """The sample is representative: four times as many rows give the same figures."""
    few, many = (
        simulate("size_tiered", SizeTiered(), Workload(**{**SMALL, "rows_max": count}), CompactorModel())
        for count in (20_000, 80_000)
    )
    assert few.write_amplification == pytest.approx(many.write_amplification, rel=0.03)
    assert few.space_amplification == pytest.approx(many.space_amplification, rel=0.03)


@pytest.mark.parametrize(
    ("inputs", "output", "requests"),
    [
        pytest.param([50_000] * 4, 200_000, 4 + 4 * 4 + 4 * 3, id="four small L0s in four ranges, as the engine does"),
        pytest.param([400 * MIB, 40 * MIB], 440 * MIB, 3 + 110 + 2 * 2 + 55, id="one range beside a large run"),
        pytest.param([64 * MIB] * 8, 0, 8 + 8 * 16, id="nothing is left"),
        pytest.param([0, 0], 0, 2, id="runs without rows"),
    ],
)
def test_requests_of_a_job(inputs, output, requests):
    assert job_requests(inputs, output, 256 * MIB) == requests + 22


def test_a_recorded_load_is_flushed_as_it_was():
    flushes = [RecordedFlush(at_s=1000.0 + 60 * n, bytes=8 * MIB) for n in range(40)]
    load = Workload(recorded=recorded_flushes(flushes[::-1]), overwrite_share=0.2)
    found = simulate("size_tiered", SizeTiered(), load, CompactorModel())
    assert found.duration_s == 39 * 60
    assert found.flushed_bytes == pytest.approx(40 * 8 * MIB, rel=0.02)


def test_all_mistakes_in_a_load_are_told_at_once():
    with pytest.raises(InvalidRequestError) as error:
        Workload(rate_bytes_s=0, duration_s=math.nan, overwrite_share=0.9, delete_share=0.2, value_bytes=-1)
    for named in ("rate", "duration", "more than 1 together", "value_bytes"):
        assert named in str(error.value)
    with pytest.raises(InvalidRequestError, match=r"jobs must be above 0.*throughput"):
        CompactorModel(jobs=0, throughput_bytes_s=0)
