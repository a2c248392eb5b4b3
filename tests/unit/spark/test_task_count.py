"""How many SSTs a load makes: a new database one per core at least, an append as few as its rows need."""

import pytest

from shale_spark.load.request import Mode
from shale_spark.load.task_count import TASKS_MAX, plan_measured, plan_tasks

MIB = 1 << 20
ENDLESS = (1 << 63) - 1


@pytest.mark.parametrize(
    ("mode", "estimate", "tasks"),
    [
        pytest.param(Mode.CREATE, 0, 8, id="a new database: every core"),
        pytest.param(Mode.CREATE, 100 * MIB, 10, id="a new database: one for each SST"),
        pytest.param(Mode.CREATE, TASKS_MAX * 10 * MIB, TASKS_MAX, id="as many tasks as there may be"),
        pytest.param(Mode.CREATE, TASKS_MAX * 10 * MIB + 1, None, id="more than that is measured"),
        pytest.param(Mode.CREATE, ENDLESS, 8, id="unknown size: every core makes as many as it needs"),
        pytest.param(Mode.CREATE, None, 8, id="nothing said"),
        pytest.param(Mode.APPEND, 0, 1, id="an append of nothing"),
        pytest.param(Mode.APPEND, 10 * MIB, 1, id="an append that fits one SST"),
        pytest.param(Mode.APPEND, 10 * MIB + 1, 2, id="an append that just does not"),
        pytest.param(Mode.APPEND, 100 * MIB, 10, id="a large append"),
        pytest.param(Mode.APPEND, ENDLESS, None, id="an append of unknown size is measured"),
        pytest.param(Mode.APPEND, ENDLESS**2, None, id="an append of a join is measured"),
        pytest.param(Mode.APPEND, None, None, id="an append without any estimate is measured"),
    ],
)
def test_tasks_of_an_estimate(mode: Mode, estimate: int | None, tasks: int | None) -> None:
    assert plan_tasks(estimate, mode=mode, cores=8, sst_bytes=10 * MIB) == tasks


def test_what_was_measured_is_believed_up_to_the_limit() -> None:
    assert plan_measured(5 * MIB, mode=Mode.APPEND, cores=8, sst_bytes=10 * MIB) == 1
    assert plan_measured(25 * MIB, mode=Mode.APPEND, cores=8, sst_bytes=10 * MIB) == 3
    assert plan_measured(ENDLESS, mode=Mode.APPEND, cores=8, sst_bytes=10 * MIB) == TASKS_MAX
    assert plan_measured(5 * MIB, mode=Mode.CREATE, cores=8, sst_bytes=10 * MIB) == 8
