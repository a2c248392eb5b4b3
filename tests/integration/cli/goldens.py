"""The JSON output of each command, compared with ``golden/<command>.json``; ``SHALE_GOLDEN=write`` writes the files.

Fields are only ever added (docs/how-to/command-line.md): look at what changes in a golden file before you commit it.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from shale_cli.__main__ import main

FOLDER = Path(__file__).parent / "golden"
WRITES = os.environ.get("SHALE_GOLDEN") == "write"

_NAMED = (
    ("ulid", re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")),
    ("uuid", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")),
)
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_SIGN = re.compile(r"(writer:\d+)\?\S*")
_MOMENT_MS_MIN = 10**12
_VOLATILE = ("sequence_tracker_b64", "last_l0_clock_tick")


class Golden:
    """Runs commands in this process and compares their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._tmp_path = tmp_path
        self._ids: dict[str, str] = {}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command; it must end with ``code``."""
        return self._ran(arguments, code).out

    def refused(self, *arguments: str, code: int) -> str:
        """Return the stderr of a command; it must print nothing on stdout and end with ``code``."""
        captured = self._ran(arguments, code)
        assert captured.out == ""
        return captured.err

    def _ran(self, arguments: Sequence[str], code: int) -> "pytest.CaptureResult[str]":
        self._monkeypatch.setattr(sys, "argv", ["shale", *arguments])
        self._capsys.readouterr()
        ended = main()
        captured = self._capsys.readouterr()
        assert ended == code, f"{arguments}: {ended}: {captured.err}"
        return captured

    def check(self, name: str, *arguments: str, code: int = 0, volatile: Collection[str] = ()) -> Any:
        """Run a command with ``-o json`` and compare it with ``golden/<name>.json``.

        Ids become names in the order in which this test met them, times ``<time>`` and ``<ms>``, the test's directory
        ``<tmp>``.

        Args:
            name: of the command, ``kv-get``; with a suffix after a dot for further cases, ``kv-get.missing``.
            volatile: fields whose values differ from run to run, such as sizes of files that hold times.

        Returns:
            what it printed: one document, or a list of them where it prints lines.
        """
        text = self.run(*arguments, "-o", "json", code=code)
        data = parsed(text)
        normal = json.dumps(self._normal(data, {*_VOLATILE, *volatile}), indent=2, ensure_ascii=False) + "\n"
        file = FOLDER / f"{name}.json"
        if WRITES:
            file.write_text(normal)
        assert file.is_file(), f"no {file.name} yet: SHALE_GOLDEN=write writes it"
        assert normal == file.read_text(), f"{' '.join(arguments)} differs from {file.name}"
        return data

    def _normal(self, value: Any, volatile: Collection[str], name: str = "") -> Any:
        if name in volatile and value is not None:
            return f"<{name}>"
        match value:
            case dict():
                return {self._text(key): self._normal(below, volatile, key) for key, below in value.items()}
            case list():
                return [self._normal(below, volatile) for below in value]
            case str():
                return self._text(value)
            case int() if name.endswith("_ms") and value >= _MOMENT_MS_MIN:
                return "<ms>"
            case _:
                return value

    def _text(self, text: str) -> str:
        for kind, pattern in _NAMED:
            text = pattern.sub(lambda found, kind=kind: self._name(kind, found.group()), text)  # type: ignore[misc]
        return _TIME.sub("<time>", _SIGN.sub(r"\1?<sign>", text.replace(str(self._tmp_path), "<tmp>")))

    def _name(self, kind: str, found: str) -> str:
        count = sum(name.startswith(f"<{kind} ") for name in self._ids.values())
        return self._ids.setdefault(found, f"<{kind} {count + 1}>")


def parsed(text: str) -> Any:
    """Parse one document, or one for each line."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]
