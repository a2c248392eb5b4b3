"""The command line of ``python -m tests.bench`` and ``python -m tests.bench.spark``: which suites to run."""

import argparse
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any


class Suites:
    """Suites of benchmarks by name, each with the entry point (``module:function``) that yields its lines."""

    def __init__(self, prog: str, entry_points: Mapping[str, str]) -> None:
        self.entry_points = entry_points
        self.parser = argparse.ArgumentParser(prog=prog)
        names = ", ".join(entry_points)
        self.parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {names}; default: all")

    def parse(self) -> argparse.Namespace:
        """Parse the command line; ``suites`` holds the names given, or all of them."""
        arguments = self.parser.parse_args()
        if unknown := set(arguments.suites) - set(self.entry_points):
            self.parser.error(f"no such suite: {', '.join(sorted(unknown))}")
        arguments.suites = arguments.suites or list(self.entry_points)
        return arguments

    def load(self, name: str) -> Callable[..., Any]:
        """Import the function of a suite."""
        function: Callable[..., Any] = resolve_name(self.entry_points[name])
        return function
