"""A plot of CPU time beside SSTs as SVG, both axes logarithmic."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 900, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 40, 60
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#888")
_MIN_MS = 0.1


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the plot: pairs of SSTs and milliseconds."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from ``10**low`` to ``10**high``, which lie at the pixels ``start`` and ``end``."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> "_Axis":
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    def at(self, value: float) -> float:
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)


def write_plot(path: Path, series: Sequence[Series]) -> None:
    """Write the plot of all series."""
    points = [(x, max(y, _MIN_MS)) for each in series for x, y in each.points]
    across = _Axis.of([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis.of([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, "CPU time in milliseconds, by number of SSTs of 64 MiB"),
        *_grid(across, up),
    ]
    for number, each in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        places = " ".join(f"{across.at(x):.1f},{up.at(max(y, _MIN_MS)):.1f}" for x, y in each.points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = _TOP + 10 + 20 * number
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 20}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
        parts.append(_text(_WIDTH - _RIGHT + 40, y, each.name))
    path.write_text("\n".join([*parts, "</svg>", ""]))


def _grid(across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for power in range(across.low, across.high + 1):
        x = across.at(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{up.start}" x2="{x:.1f}" y2="{up.end}" stroke="#ddd"/>')
        parts.append(_text(x - 14, up.start + 20, f"{10**power:,}"))
    for power in range(up.low, up.high + 1):
        y = up.at(10.0**power)
        parts.append(f'<line x1="{across.start}" y1="{y:.1f}" x2="{across.end}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(8, y + 4, f"{10.0**power:g} ms"))
    return parts


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
