"""``python -m shale.telemetry.reference``: the page of docs/telemetry.md, made of the catalogues."""

import sys
from collections.abc import Iterator

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.events import Event
from shale.telemetry.spec import LABEL_VALUES, MetricSpec


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join((*_head(), *_metrics(), *_labels(), *_events(), ""))


def _head() -> Iterator[str]:
    yield "# Metrics and log events"
    yield ""
    yield "Made by `make gen` from `shale.telemetry`; a test compares both.  `operations.md` says how to use them."


def _metrics() -> Iterator[str]:
    yield from ("", "## Metrics", "", "| name | kind | labels | what |", "| --- | --- | --- | --- |")
    for spec in CATALOGUE.values():
        labels = ", ".join(_label(spec, name) for name in spec.labels)
        yield f"| `{spec.name}` | {spec.kind} | {labels} | {spec.help} |"


def _label(spec: MetricSpec, name: str) -> str:
    own = spec.values.get(name)
    return f"`{name}` ({', '.join(own)})" if own else f"`{name}`"


def _labels() -> Iterator[str]:
    yield from (
        "",
        "## Labels",
        "",
        "Where a metric does not say otherwise:",
        "",
        "| label | values |",
        "| --- | --- |",
    )
    for name, values in LABEL_VALUES.items():
        yield f"| `{name}` | {', '.join(values)} |"


def _events() -> Iterator[str]:
    yield from ("", "## Log events", "", "| event | level |", "| --- | --- |")
    for event in Event:
        yield f"| `{event.value}` | {event.level} |"


if __name__ == "__main__":
    sys.stdout.write(page())
