"""The declarations of ``schemas/models/models.toml`` fit the models, and TLC's output is understood."""

import re

import pytest

from tests.checks.models import checker
from tests.checks.models.__main__ import runs

DECLARED = {name: declared for name, declared in checker.settings().items() if name != "checker"}
OK = "12 states generated, 1,234 distinct states found, 0 states left on queue.\n"
PARTIAL = "12 states generated, 7 distinct states found, 3 states left on queue.\n"
VIOLATED = "Error: Invariant NoRowIsLost is violated.\nState 1: <Init>\n\nState 2: <Append>\n" + PARTIAL


def module(name: str) -> str:
    return (checker.MODELS / f"{name}.tla").read_text()


@pytest.mark.parametrize("name", DECLARED)
def test_every_mutation_of_a_model_is_declared_and_breaks_a_property(name: str) -> None:
    declared = DECLARED[name]
    compared = re.findall(r"Mutation (?:=|#|\\in) (?:\{([^}]*)\}|(\"[^\"]*\"))", module(name))
    written = {text for pair in compared for text in re.findall(r'"([^"]*)"', "".join(pair))}
    assert set(declared["mutations"]) == written
    properties = set(declared["invariants"] + declared["properties"])
    for expected in declared["mutations"].values():
        assert {expected["breaks"], expected.get("loses", expected["breaks"])} <= properties


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_property_is_defined(name: str) -> None:
    for checked in DECLARED[name]["invariants"] + DECLARED[name]["properties"]:
        assert re.search(rf"^{checked} ==", module(name), re.MULTILINE)


@pytest.mark.parametrize("quick", [True, False])
def test_every_run_sets_every_constant(quick: bool) -> None:
    for run in runs(quick=quick):
        constants = module(run.model).partition("CONSTANTS")[2].partition("VARIABLES")[0]
        assert set(re.findall(r"^ +(\w+),? +\\\*", constants, re.MULTILINE)) == {*run.bounds, "Mutation"}


def test_outcomes_are_read_from_the_output() -> None:
    held, violated, partial = (checker.read_outcome(text) for text in (OK, VIOLATED, PARTIAL))
    assert (held.states, held.violated, held.is_complete) == (1234, None, True)
    assert (violated.violated, violated.steps, violated.is_complete) == ("NoRowIsLost", 2, False)
    assert not partial.is_complete


def test_output_without_a_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="Parsing failed"):
        checker.read_outcome("Error: Parsing failed")
