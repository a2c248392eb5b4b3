"""Records which lines of some files a test runs."""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class LineTrace:
    """Records lines of chosen files, in all threads that start while it is on."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self._lines: defaultdict[str, set[int]] = defaultdict(set)

    @contextmanager
    def recording(self) -> Iterator[dict[str, set[int]]]:
        """Yield the lines by file; they are complete at the end of the block."""
        lines: defaultdict[str, set[int]] = defaultdict(set)
        self._lines = lines
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        try:
            yield lines
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # None is documented

    def _on_call(self, frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        lines = self._lines[frame.f_code.co_filename]

        def on_line(frame: FrameType, event: str, value: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return on_line

        return on_line
