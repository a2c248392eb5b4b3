"""Selection of tests by the row of the fault catalogue: ``pytest --fault F2`` or ``pytest --fault F2.4``."""

import re

import pytest

ROW = re.compile(r"F[1-9]\d*(\.[1-9]\d*[a-z]?)?")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option; it may be given several times."""
    parser.addoption(
        "--fault",
        action="append",
        default=[],
        metavar="ROW",
        help="run only the tests of a part (F2) or of one row (F2.4) of the fault catalogue",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse a row that no catalogue can have."""
    config.addinivalue_line("markers", "fault(*rows): rows of the fault catalogue (docs/reference/protocol.md 16)")
    for row in config.getoption("fault"):
        if not ROW.fullmatch(row):
            raise pytest.UsageError(f"--fault {row}: a part is named F2, a row F2.4")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are marked with none of the wanted rows."""
    wanted = config.getoption("fault")
    if not wanted:
        return
    selected = [item for item in items if any(is_of(row, wanted) for row in rows_of(item))]
    chosen = set(selected)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = selected


def rows_of(item: pytest.Item) -> set[str]:
    """Return the rows of the catalogue that a test is marked with."""
    return {str(row) for mark in item.iter_markers("fault") for row in mark.args}


def is_of(row: str, wanted: list[str]) -> bool:
    """Say whether a row is one of the wanted rows or belongs to one of the wanted parts."""
    return any(row == each or row.startswith(f"{each}.") for each in wanted)
