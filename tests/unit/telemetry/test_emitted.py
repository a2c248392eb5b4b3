"""Every metric and every event of the catalogue has code that emits it.

The code must name it: a metric as a text, also as a formatted one with words of its module, and an event as a member of
``Event``.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.events import Event
from tests.paths import REPOSITORY
from tests.unit.structure.source_tree import code

DECLARES = "shared/shale/telemetry/"
HELPS_TESTS = "shared/shale/testing/"


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield a pattern for each text of a module; a computed part matches any word that the module has as a text."""
    constants = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    yield from map(re.escape, constants)
    word = "(?:" + "|".join(sorted(text for text in constants if re.fullmatch("[a-z0-9_]+", text))) + ")"
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else word for part in node.values)


@cache
def _emitting() -> list[ast.Module]:
    return [module.tree for module in code() if not module.path.startswith((DECLARES, HELPS_TESTS))]


@cache
def _metrics_in_code() -> list[re.Pattern[str]]:
    """Patterns of all texts in the code that may be names of metrics."""
    texts = {text for tree in _emitting() for text in _texts(tree)}
    return [re.compile(text) for text in sorted(texts) if text.startswith(("slatedb_", "shale_"))]


@cache
def _events_in_code() -> set[str]:
    """Members of ``Event`` that the code names."""
    nodes = (node for tree in _emitting() for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "Event"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_metric_of_the_catalogue_is_emitted(name: str) -> None:
    assert any(pattern.fullmatch(name) for pattern in _metrics_in_code())


@pytest.mark.parametrize("event", Event, ids=str)
def test_every_event_of_the_catalogue_is_logged(event: Event) -> None:
    assert event.name in _events_in_code()


def test_pages_name_no_metric_without_code() -> None:
    """The names in the protocol and in the pages for operators are those of the catalogue."""
    suffix = re.compile(r"_(bucket|count|sum)$")
    named: set[str] = set()
    for page in (REPOSITORY / "docs").rglob("*.md"):
        named |= set(re.findall(r"`(slatedb_[a-z0-9_]+_(?:total|seconds|bytes))`", page.read_text()))
    assert {name for name in named if suffix.sub("", name) not in CATALOGUE} == set()
