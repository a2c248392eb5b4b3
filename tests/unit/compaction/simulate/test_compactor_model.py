"""Parameters of the simulated machines, and the costs that the result tells."""

import math

import pytest

from shale.compaction.simulate.compactor_model import CompactorModel, job_requests
from shale.compaction.simulate.result import SimulationResult
from shale.errors import InvalidRequestError

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"jobs": 0}, "jobs must"),
        ({"l0_max_ssts": 0}, "l0_max_ssts must"),
        ({"poll_interval_s": 0.0}, "poll_interval must"),
        ({"poll_interval_s": math.inf}, "poll_interval must"),
        ({"max_sst_bytes": 0}, "max_sst_size must"),
        ({"throughput_bytes_s": 0.0}, "throughput must be above 0, not 0"),
        ({"throughput_bytes_s": math.nan}, "throughput must be above 0, not nan"),
    ],
)
def test_what_is_out_of_range_is_named(changed, named):
    with pytest.raises(InvalidRequestError, match=f"^{named}[^;]*$"):
        CompactorModel(**changed)


def test_bounds_of_the_parameters():
    least = CompactorModel(jobs=1, l0_max_ssts=1, poll_interval_s=0.1, max_sst_bytes=1, throughput_bytes_s=0.1)
    assert (least.jobs, least.throughput_bytes_s) == (1, 0.1)
    assert CompactorModel(throughput_bytes_s=math.inf).throughput_bytes_s == math.inf


@pytest.mark.parametrize(
    ("inputs", "output", "requests"),
    [
        pytest.param([1, 1], 2, 2 + 2 * 2 + 2 * 3, id="two equal ones in two ranges"),
        pytest.param([100] * 5, 500, 5 + 5 * 4 + 4 * 3, id="four ranges at most"),
        pytest.param([100, 50, 49], 199, 3 + 3 + 3, id="one range if the sum is below twice the largest"),
        pytest.param([MIB], MIB, 1 + 1 + 3, id="one source"),
        pytest.param([4 * MIB], 8 * MIB, 1 + 1 + 3, id="a whole GET, a whole part"),
        pytest.param([4 * MIB + 1], 8 * MIB + 1, 1 + 2 + 4, id="a byte more"),
        pytest.param([256 * MIB], 256 * MIB, 1 + 64 + 2 + 32, id="one SST of the maximal size"),
        pytest.param([256 * MIB + 1], 256 * MIB + 1, 2 + 65 + 4 + 33, id="and of a byte more"),
    ],
)
def test_requests_of_a_job(inputs, output, requests):
    assert job_requests(inputs, output, 256 * MIB) == requests + 22


def test_rates_per_hour():
    result = SimulationResult(
        policy="p",
        duration_s=1_800.0,
        written_bytes=0.0,
        flushed_bytes=100.0,
        compacted_bytes=30.0,
        read_bytes=0.0,
        write_amplification=1.0,
        read_amplification=1.0,
        read_amplification_max=1,
        space_amplification=1.0,
        space_amplification_max=1.0,
        stall_s=0.0,
        jobs=1,
        requests=7,
        left_l0=0,
        left_runs=0,
        samples=(),
    )
    assert (result.bytes_written_per_hour, result.requests_per_hour) == (260.0, 14.0)
