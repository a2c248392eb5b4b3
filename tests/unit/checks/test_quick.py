"""Which unit tests `make quick` runs for a change."""

from pathlib import Path

import pytest

from tests.checks import quick


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in ("gc/test_planner.py", "gc/test_other.py", "engine/write/test_batch.py", "test_top.py"):
        path = tmp_path / "tests/unit" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("shared/shale/gc/planner.py", ["tests/unit/gc"]),
        ("shared/shale/gc/options.py", ["tests/unit/gc"]),
        ("services/shale_gc/app.py", ["tests/unit/gc"]),
        ("shared/shale/engine/flush/planner.py", ["tests/unit/engine"]),
        ("tests/unit/engine/write/test_batch.py", ["tests/unit/engine/write/test_batch.py"]),
        ("docs/index.md", []),
        ("Makefile", []),
    ],
)
def test_the_nearest_tests(tree: Path, changed: str, tests: list[str]) -> None:
    assert quick.tests_of([changed]) == tests


def test_a_folder_covers_its_files(tree: Path) -> None:
    assert quick.tests_of(["tests/unit/gc/test_other.py", "shared/shale/gc/options.py"]) == ["tests/unit/gc"]
