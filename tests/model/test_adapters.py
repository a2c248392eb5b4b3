"""One set of rules on every adapter; ``make soak-tests`` runs more examples."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import shale
from tests.model.adapters import AsyncAdapter, DatabaseAdapter, SyncAdapter
from tests.model.http_adapter import HttpAdapter
from tests.model.resp_adapter import RespAdapter
from tests.model.state_machine import DatabaseMachine

STEPS = 50
QUICK = settings(
    max_examples=10,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class OnAsync(DatabaseMachine):
    def adapter_of(self, db: shale.Db) -> DatabaseAdapter:
        return AsyncAdapter(db, self.harness.run)


class OnSync(DatabaseMachine):
    def adapter_of(self, db: shale.Db) -> DatabaseAdapter:
        return SyncAdapter.on(db, self.harness.run)


class OnHttp(DatabaseMachine):
    def adapter_of(self, db: shale.Db) -> DatabaseAdapter:
        return HttpAdapter.of(db, self.harness)


class OnResp(DatabaseMachine):
    hides_expired = True

    def adapter_of(self, db: shale.Db) -> DatabaseAdapter:
        return RespAdapter.of(db, self.harness)


ADAPTERS = [OnAsync, OnSync, OnHttp, OnResp]


@pytest.mark.slow
@pytest.mark.parametrize("machine", ADAPTERS)
def test_an_adapter_does_what_the_model_says(machine: Any) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.soak
@pytest.mark.parametrize("machine", ADAPTERS)
def test_an_adapter_does_so_for_long(machine: Any) -> None:
    """``SHALE_MODEL_EXAMPLES`` sets the number of runs of a hundred steps; there is no other limit."""
    examples = int(os.environ.get("SHALE_MODEL_EXAMPLES", "2000"))
    long = settings(QUICK, max_examples=examples, stateful_step_count=100, derandomize=False)
    run_state_machine_as_test(machine, settings=long)
