"""Grafana's own types know every field of the dashboards: what they do not know is lost on the way through them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.paths import REPOSITORY

DASHBOARDS = sorted((REPOSITORY / "deploy" / "observability" / "dashboards").glob("*.json"))


def lost(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Return the places of a tree whose keys or values differ afterwards."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{place}[{number}]")
    elif before != after:
        yield f"{place}: {before} became {after}"


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_field_is_known(file: Path) -> None:
    plugins.register_default_plugins()
    tree = json.loads(file.read_text())
    read: Any = Dashboard.from_json(tree)
    assert {type(panel.options).__module__ for panel in read.panels if panel.type_val != "row"} <= {
        f"grafana_foundation_sdk.models.{kind}" for kind in ("timeseries", "stat", "heatmap")
    }
    for annotation in tree["annotations"]["list"]:
        annotation.pop("titleFormat")  # a field of Prometheus' own, which the types do not list
    assert list(lost(tree, json.loads(JSONEncoder().encode(read)))) == []
