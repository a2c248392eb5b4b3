"""All structure tests run in one process, which parses each source file once."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group the tests here, before pytest-xdist looks for groups."""
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("structure"))
