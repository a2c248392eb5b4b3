"""One set of rules on every face; ``make soak`` runs them for as long as it is told."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import shale
from tests.model.faces import AsyncFace, Face, SyncFace
from tests.model.http_face import HttpFace
from tests.model.machine import DatabaseMachine
from tests.model.resp_face import RespFace

STEPS = 50
QUICK = settings(
    max_examples=50,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class OnAsync(DatabaseMachine):
    def face_of(self, db: shale.Db) -> Face:
        return AsyncFace(db, self.house.run)


class OnSync(DatabaseMachine):
    def face_of(self, db: shale.Db) -> Face:
        return SyncFace.on(db, self.house.run)


class OnHttp(DatabaseMachine):
    def face_of(self, db: shale.Db) -> Face:
        return HttpFace.of(db, self.house)


class OnResp(DatabaseMachine):
    hides_expired = True

    def face_of(self, db: shale.Db) -> Face:
        return RespFace.of(db, self.house)


FACES = [OnAsync, OnSync, OnHttp, OnResp]


@pytest.mark.parametrize("machine", FACES)
def test_a_face_does_what_the_model_says(machine: Any) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.soak
@pytest.mark.parametrize("machine", FACES)
def test_a_face_does_so_for_ever(machine: Any) -> None:
    """``SHALE_MODEL_EXAMPLES`` says how many runs of a hundred steps; there is no other limit."""
    examples = int(os.environ.get("SHALE_MODEL_EXAMPLES", "2000"))
    long = settings(QUICK, max_examples=examples, stateful_step_count=100, derandomize=False)
    run_state_machine_as_test(machine, settings=long)
