"""Which lines of the fuzzed modules ran: the search keeps inputs that reach new ones.

From Python 3.12 on ``sys.monitoring`` reports each line once and costs nothing afterwards.  Before, ``sys.settrace``
traces the functions that still have lines left.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_TOOL = 4
_EAGER = 2000
_SELDOM = 4


def files_of(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the source file of each module."""
    files = {}
    for module in modules:
        spec = find_spec(module)
        assert spec is not None, module
        assert spec.origin is not None, module
        files[spec.origin] = module
    return files


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _functions(constant)


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


def function_lines(file: str) -> set[int]:
    """Return the lines inside functions; others run when the module is imported."""
    module = compile(Path(file).read_text(encoding="utf-8"), file, "exec")
    is_class = {code: "__qualname__" in code.co_names for code in _functions(module)}
    return {line for code, skipped in is_class.items() if not skipped for line in _lines(code)}


class LineCoverage:
    """Lines that ran, by file."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self.files = files_of(modules)
        self.hit: dict[str, set[int]] = {file: set() for file in self.files}
        self._is_new = False
        self._left: dict[int, tuple[CodeType, set[int]]] = {}
        self._runs = 0
        self._monitors = sys.version_info >= (3, 12)
        if self._monitors:
            self._monitor()

    def watch(self, run: Callable[[], None]) -> bool:
        """Call ``run`` and return whether it reached a new line; it must not raise."""
        self._runs += 1
        self._is_new = False
        if self._monitors or (self._runs > _EAGER and self._runs % _SELDOM):
            run()
            return self._is_new
        sys.settrace(self._call)
        try:
            run()
        finally:
            sys.settrace(None)
        return self._is_new

    def _monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # from Python 3.12 on

        def line(code: CodeType, number: int) -> Any:
            if code.co_filename in self.hit:
                self._add(code.co_filename, number)
            return monitoring.DISABLE

        monitoring.use_tool_id(_TOOL, "shale-fuzz")
        monitoring.register_callback(_TOOL, monitoring.events.LINE, line)
        monitoring.set_events(_TOOL, monitoring.events.LINE)

    def _add(self, file: str, line: int) -> None:
        lines = self.hit[file]
        if line not in lines:
            lines.add(line)
            self._is_new = True

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        found = self._left.get(id(code))
        if found is None:
            # The entry keeps the code alive, so that no other one gets its id.
            found = self._left[id(code)] = code, _lines(code) if code.co_filename in self.hit else set()
        left = found[1]
        if not left:
            return None
        file = code.co_filename

        def each(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line" and frame.f_lineno in left:
                left.discard(frame.f_lineno)
                self._add(file, frame.f_lineno)
            return each

        return each
