"""Records which functions an operation calls, in order, and compares them with the numbered list of a page."""

import dis
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias

from tests.checks.design_table import function_at

_STEP = re.compile(r"^\d+\. [^`]*`((?:shale|shale_[a-z]+)(?:\.\w+)+)`", re.MULTILINE)
_RESUME = dis.opmap["RESUME"]


Recording: TypeAlias = Callable[[], AbstractContextManager[None]]
"""``CallRecorder.recording``, as scenarios get it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered item of a page."""

    name: str
    code: CodeType


def steps_of(page: Path) -> list[Step]:
    """Resolve the first name in backticks of every numbered item.

    Raises:
        AssertionError: a name is not a function of the code base, or there are no items.
    """
    names = _STEP.findall(page.read_text())
    assert names, f"{page.name} has no numbered item that begins with `module.qualname`"
    return [Step(name, code_of(name)) for name in names]


def code_of(name: str) -> CodeType:
    """Return the code of the function or method with this dotted name."""
    try:
        return function_at(name).__code__
    except LookupError as error:
        raise AssertionError(str(error)) from error


class CallRecorder:
    """Collects the calls of some functions, in every thread, while ``recording`` is entered."""

    def __init__(self, steps: list[Step]) -> None:
        self.calls: list[CodeType] = []
        self._wanted = {step.code for step in steps}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what happens inside the block."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in self._wanted and _is_start(frame):
            self.calls.append(frame.f_code)


def first_missing(steps: list[Step], calls: list[CodeType]) -> str | None:
    """Return the first step that is not called after all steps before it; ``None`` if the order holds."""
    remaining = iter(calls)
    for step in steps:
        if not any(call is step.code for call in remaining):
            return step.name
    return None


def _is_start(frame: FrameType) -> bool:
    """Distinguish the start of a coroutine from a resumption, for which the interpreter reports a call too."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return not (code[at] == _RESUME and code[at + 1] & 3)
