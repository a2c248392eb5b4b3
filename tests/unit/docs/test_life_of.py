"""The pages ``docs/concepts/life-of-*.md`` name functions that exist and that are called in the order of the page.

A page has a numbered list; each item begins with the dotted name of a function in backticks.  The scenario of
``life-of-a-put.md`` is ``run`` in ``tests/unit/docs/life_of_a_put.py``: it gets the recorder's context manager and
enters it around the operation.
"""

import importlib
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.unit.docs.call_order import CallRecorder, code_of, first_missing, steps_of

PAGES = sorted((Path(__file__).parents[3] / "docs" / "concepts").glob("life-of-*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_steps_are_called_in_order(page: Path) -> None:
    steps = steps_of(page)
    scenario = importlib.import_module(f"tests.unit.docs.{page.stem.replace('-', '_')}")
    recorder = CallRecorder(steps)
    anyio.run(partial(scenario.run, recorder.recording))
    missing = first_missing(steps, recorder.calls)
    order = [call.co_qualname for call in recorder.calls]
    assert missing is None, f"{page.name}: {missing} is not called after the steps before it; calls: {order}"


def test_an_unknown_function_is_reported() -> None:
    with pytest.raises(AssertionError, match="has no putt"):
        code_of("shale.engine.db.Db.putt")


def test_a_wrong_order_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "life-of-nothing.md"
    page.write_text("1. `shale.types.KeyRange.half_open`: first.\n2. `shale.types.KeyRange.contains`: second.\n")
    steps = steps_of(page)
    first, second = steps
    assert first_missing(steps, [first.code, second.code]) is None
    assert first_missing(steps, [second.code, first.code]) == second.name
