"""How many SSTs a load makes: a new database one per core at least, an append as few as its rows need."""

import pytest

from shale_spark.load.request import LoadMode
from shale_spark.load.task_count import TASKS_MAX, plan_tasks, plan_tasks_for_size

MIB = 1 << 20
ENDLESS = (1 << 63) - 1


@pytest.mark.parametrize(
    ("mode", "estimate", "tasks"),
    [
        pytest.param(LoadMode.CREATE, 0, 8, id="a new database: every core"),
        pytest.param(LoadMode.CREATE, 100 * MIB, 10, id="a new database: one for each SST"),
        pytest.param(LoadMode.CREATE, TASKS_MAX * 10 * MIB, TASKS_MAX, id="as many tasks as there may be"),
        pytest.param(LoadMode.CREATE, TASKS_MAX * 10 * MIB + 1, None, id="more than that is measured"),
        pytest.param(LoadMode.CREATE, ENDLESS, 8, id="unknown size: every core makes as many as it needs"),
        pytest.param(LoadMode.CREATE, None, 8, id="nothing said"),
        pytest.param(LoadMode.APPEND, 0, 1, id="an append of nothing"),
        pytest.param(LoadMode.APPEND, 10 * MIB, 1, id="an append that fits one SST"),
        pytest.param(LoadMode.APPEND, 10 * MIB + 1, 2, id="an append that just does not"),
        pytest.param(LoadMode.APPEND, 100 * MIB, 10, id="a large append"),
        pytest.param(LoadMode.APPEND, ENDLESS, None, id="an append of unknown size is measured"),
        pytest.param(LoadMode.APPEND, ENDLESS**2, None, id="an append of a join is measured"),
        pytest.param(LoadMode.APPEND, None, None, id="an append without any estimate is measured"),
    ],
)
def test_tasks_of_an_estimate(mode: LoadMode, estimate: int | None, tasks: int | None) -> None:
    assert plan_tasks(estimate, mode=mode, cores=8, sst_bytes=10 * MIB) == tasks


def test_what_was_measured_is_believed_up_to_the_limit() -> None:
    assert plan_tasks_for_size(5 * MIB, mode=LoadMode.APPEND, cores=8, sst_bytes=10 * MIB) == 1
    assert plan_tasks_for_size(25 * MIB, mode=LoadMode.APPEND, cores=8, sst_bytes=10 * MIB) == 3
    assert plan_tasks_for_size(ENDLESS, mode=LoadMode.APPEND, cores=8, sst_bytes=10 * MIB) == TASKS_MAX
    assert plan_tasks_for_size(5 * MIB, mode=LoadMode.CREATE, cores=8, sst_bytes=10 * MIB) == 8
