"""Subsets of the rules run operations in every step that are rare among all rules."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.rule_subsets import Outliving, Racing
from tests.model.state_machine import DatabaseMachine
from tests.model.test_adapters import QUICK


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "examples", "steps"), [(Racing, 6, 25), (Outliving, 4, 2)])
def test_the_rules_hold(machine: type[DatabaseMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=examples, stateful_step_count=steps))
