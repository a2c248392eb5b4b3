"""What a dashboard is made of.  ``$all`` in an expression stands for the variables of the dashboard."""

from typing import NamedTuple


class Panel(NamedTuple):
    """A panel; ``queries`` are pairs of a legend and an expression, ``threshold`` is the one of its alert."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    threshold: float | None = None
    with_db: bool = True


class Row(NamedTuple):
    """Panels with one subject."""

    title: str
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    """One page."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def stat(title: str, description: str, unit: str, query: str, threshold: float | None = None) -> Panel:
    """One number for each database."""
    return Panel(title, description, unit, (("{{db}}", query),), "stat", threshold)


def one(title: str, description: str, unit: str, legend: str, query: str, threshold: float | None = None) -> Panel:
    """A panel of one query."""
    return Panel(title, description, unit, ((legend, query),), threshold=threshold)


def heatmap(title: str, description: str, metric: str, more: str = "") -> Panel:
    """Show how many events fell into each bucket of a histogram."""
    query = f"sum by (le) (increase({metric}_bucket{{$all{more}}}[$__rate_interval]))"
    return Panel(title, description, "s", (("{{le}}", query),), "heatmap")


def several(title: str, description: str, unit: str, *queries: tuple[str, str]) -> Panel:
    """Show several queries, each with its legend, in one panel."""
    return Panel(title, description, unit, queries)


def process(title: str, description: str, unit: str, legend: str, query: str, threshold: float | None = None) -> Panel:
    """A panel of metrics that have no ``db``."""
    return Panel(title, description, unit, ((legend, query),), threshold=threshold, with_db=False)
