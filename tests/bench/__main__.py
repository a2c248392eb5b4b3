"""``make bench``: the table of docs/architecture.md's promises, every line measured in this run.

python -m tests.bench [codec|compaction|calls|durable]...
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.line import BenchLine

SUITES = {"codec": "codec_lines", "compaction": "compaction_lines", "calls": "call_lines", "durable": "durable_lines"}


def main(names: list[str]) -> None:
    """Print the lines of the suites that were asked for, or of all."""
    for name in names or SUITES:
        lines: Callable[[], list[BenchLine]] = getattr(import_module(f"tests.bench.{name}"), SUITES[name])
        for line in lines():
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
