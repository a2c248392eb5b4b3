"""Events, metrics, tests and layers that pages name exist."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.events import Event
from tests.paths import REPOSITORY
from tests.unit.docs.test_site import is_name

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
SERIES = re.compile(r"_(?:bucket|count|sum)$")
"""What Prometheus appends to the name of a histogram."""


@cache
def code_spans(page: Path) -> tuple[str, ...]:
    """Return what stands in backticks on a page, and its PromQL blocks."""
    text = page.read_text("utf-8")
    queries = re.findall(r"^```promql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return (*re.findall(r"`([^`\n]+)`", prose), *queries)


def named(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each page with each match of a pattern in its code spans."""
    for page in PAGES:
        for span in code_spans(page):
            for name in re.findall(pattern, span):
                yield page.relative_to(REPOSITORY).as_posix(), name


@cache
def sources() -> str:
    """Return the code of the library and the services."""
    folders = (REPOSITORY / "shared", REPOSITORY / "services")
    return "\n".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))


def is_metric(name: str) -> bool:
    """Return whether the catalogue has a metric; a name that ends with ``_`` stands for all that begin so."""
    if name.endswith("_"):
        return any(known.startswith(name) for known in CATALOGUE)
    return name in CATALOGUE or SERIES.sub("", name) in CATALOGUE


def is_code(name: str) -> bool:
    """Return whether a name is a package of the services, or a string in the code (a column, a field)."""
    return (REPOSITORY / "services" / name).is_dir() or re.search(rf'["\' ]{name}["\' :]', sources()) is not None


def test_metrics_that_pages_name_exist() -> None:
    found = list(named(r"(?<![\w./-])(?:slatedb|shale)_[a-z0-9_]+(?![\w:])"))
    assert sum(is_metric(name) for _, name in found) > 50
    assert [each for each in found if not is_metric(each[1]) and not is_code(each[1])] == []


@cache
def chart_values() -> Any:
    """Return the default values of the chart."""
    return yaml.safe_load((REPOSITORY / "helm" / "shale" / "values.yaml").read_text("utf-8"))


def is_chart_value(name: str) -> bool:
    """Return whether the chart has a value of this name."""
    tree = chart_values()
    for key in name.split("."):
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True


def is_setting(name: str) -> bool:
    """Return whether the reference or the chart lists a setting, or a source of Spark takes it as an option."""
    reference = (REPOSITORY / "docs/reference/settings.md").read_text("utf-8")
    return is_chart_value(name) or f"`{name}`" in reference or f'"{name}"' in sources()


def test_events_that_pages_name_exist() -> None:
    events = {str(event) for event in Event}
    first_words = {event.partition(".")[0] for event in events}
    found = [
        (page, name)
        for page, name in named(r"^[a-z0-9_]+(?:\.[a-z0-9_]+)+$")
        if name.partition(".")[0] in first_words and not name.endswith(".py")
    ]
    assert sum(name in events for _, name in found) > 20
    others = {name for _, name in found} - events
    unknown = {name for name in others if not is_setting(name) and not is_name(f"shale.{name}")}
    assert [each for each in found if each[1] in unknown] == []


def test_tests_that_pages_name_exist() -> None:
    paths = [*(REPOSITORY / "tests").rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    existing = {*re.findall(r"def (test_\w+)\(", text), *(path.stem for path in paths)}
    found = list(named(r"^test_\w+$"))
    assert found
    assert [each for each in found if each[1] not in existing] == []


@pytest.mark.parametrize("name", ["slatedb_db_wal_flush_duration_seconds", "slatedb_nothing_"])
def test_an_invented_metric_is_found(name: str) -> None:
    assert not is_metric(name)
    assert not is_code(name)


def test_the_layers_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["containers"] == ["shale"])
    expected = [set(re.findall(r"\w+", layer)) - {"_generated"} for layer in reversed(layers)]
    page = (REPOSITORY / "docs/concepts/architecture.md").read_text("utf-8")
    library = page.partition("## The library")[2].partition("\n## ")[0]
    listed = [set(re.findall(r"`(\w+)`", line)) for line in re.findall(r"^- ([^:]+):", library, re.MULTILINE)]
    assert listed == expected
