"""What is rare among all rules, in every step."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.focused import Outliving, Racing
from tests.model.machine import DatabaseMachine
from tests.model.test_faces import QUICK


@pytest.mark.parametrize(("machine", "examples", "steps"), [(Racing, 6, 25), (Outliving, 4, 2)])
def test_the_rules_hold(machine: type[DatabaseMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=examples, stateful_step_count=steps))
