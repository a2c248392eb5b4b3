"""Reads YAML whose nesting is bounded.

The time of PyYAML grows with the square of the nesting of lists in brackets: 25 KB of them take some seconds.
"""

from typing import Any

import yaml

NESTING_MAX = 32


class _BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """A loader that stops at the bracket that is nested too deeply."""

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - the name in PyYAML
        if self.flow_level >= NESTING_MAX:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


def read_yaml(text: str) -> Any:
    """Return the value of a document.

    Raises:
        yaml.YAMLError: it is malformed or nested too deeply; has the place.
        ValueError: a number is too long.
    """
    loader = _BoundedLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
