"""Selection of tests by tier: ``pytest --tier default``, ``pytest --tier slow``, or a part of either: ``--part 2/4``.

A test that takes more than about a second is marked ``slow``.  Without the option both tiers run.  Parts are made of
whole files: their tests share what is expensive to set up.
"""

import re
import zlib

import pytest

TIERS = ("default", "slow")
PART = re.compile(r"([1-9]\d?)/([1-9]\d?)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--tier", choices=TIERS, help="run only the tests of one tier; without it: of both")
    parser.addoption("--part", default="1/1", metavar="K/N", help="run only part K of N parts of the selected tests")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse a part that cannot be."""
    config.addinivalue_line("markers", "slow: takes more than about a second; not in the default tier")
    part_of(config.getoption("part"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other tier, and of other parts."""
    tier = config.getoption("tier")
    number, count = part_of(config.getoption("part"))
    selected = [
        item
        for item in items
        if (tier is None or tier == tier_of(item)) and is_in_part(item.nodeid.partition("::")[0], number, count)
    ]
    if len(selected) < len(items):
        chosen = set(selected)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = selected


def part_of(text: str) -> tuple[int, int]:
    """Return the number and the count of ``K/N``.

    Raises:
        UsageError: there is no such part.
    """
    found = PART.fullmatch(text)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise pytest.UsageError(f"--part {text}: the first of four parts is 1/4")
    return number, count


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test."""
    return "default" if item.get_closest_marker("slow") is None else "slow"


def is_in_part(file: str, number: int, count: int) -> bool:
    """Say whether the tests of a file belong to a part: by the hash of its name, so that other files do not matter."""
    return zlib.crc32(file.encode()) % count == number - 1
