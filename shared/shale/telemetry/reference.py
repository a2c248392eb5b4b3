"""``python -m shale.telemetry.reference``: the page of docs/reference/telemetry.md, made from the catalogues."""

import sys
import textwrap
from collections.abc import Iterator

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.events import Event
from shale.telemetry.spec import LABEL_VALUES, MetricSpec

PAGE_WIDTH = 98


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join((*_head(), *_metrics(), *_labels(), *_events(), ""))


def _head() -> Iterator[str]:
    yield "# Metrics and log events"
    yield ""
    yield "Made by `make gen` from `shale.telemetry`; a test compares both."
    yield "[Monitor Shale](../how-to/monitor.md) describes metrics, [Logs](logs.md) log lines."


def _metrics() -> Iterator[str]:
    yield from ("", "## Metrics", "")
    for spec in CATALOGUE.values():
        labels = ", ".join(_label(spec, name) for name in spec.labels)
        kind = f"{spec.kind}; {labels}" if labels else str(spec.kind)
        yield _item(f"`{spec.name}` ({kind}): {spec.help}")


def _label(spec: MetricSpec, name: str) -> str:
    own = spec.values.get(name)
    return f"`{name}` ({', '.join(own)})" if own else f"`{name}`"


def _labels() -> Iterator[str]:
    yield from ("", "## Labels", "", "Unless a metric lists other values:", "")
    for name, values in LABEL_VALUES.items():
        yield _item(f"`{name}`: {', '.join(values)}")


def _events() -> Iterator[str]:
    yield from ("", "## Log events", "")
    for event in Event:
        yield f"- `{event.value}` ({event.level})"


def _item(text: str) -> str:
    """Return a list item, wrapped."""
    return textwrap.fill(
        f"- {text}", PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    sys.stdout.write(page())
