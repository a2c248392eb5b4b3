"""Charts as inline SVG: lines over time, and bars for what was injected."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, LEFT, ROW = 1100, 150, 18
HEIGHT = 110
COLOURS = ("#1f6feb", "#d1242f", "#9a6700", "#1a7f37", "#8250df", "#bf3989", "#57606a", "#0a7ea4", "#bc4c00")
GRID = 6


def lines(title: str, unit: str, seconds: float, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw points over seconds; each series has a colour and a name."""
    top = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    parts = [_open(HEIGHT + 40), f'<text class="t" x="0" y="14">{escape(title)}</text>', _grid(seconds, 20, HEIGHT)]
    parts.append(f'<text class="a" x="{LEFT - 6}" y="30" text-anchor="end">{_number(top)} {escape(unit)}</text>')
    parts.append(f'<text class="a" x="{LEFT - 6}" y="{HEIGHT + 18}" text-anchor="end">0</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_x(at, seconds):.1f},{20 + HEIGHT * (1 - value / top):.1f}" for at, value in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.3" points="{path}"/>')
        parts.append(f'<text class="a" x="4" y="{48 + 13 * number}" fill="{colour}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def bars(title: str, seconds: float, rows: Mapping[str, Sequence[tuple[float, float, str]]]) -> str:
    """Draw one row per name; each bar has a begin, an end and a text that a pointer shows."""
    height = ROW * len(rows)
    parts = [_open(height + 44), f'<text class="t" x="0" y="14">{escape(title)}</text>', _grid(seconds, 20, height)]
    for number, (name, found) in enumerate(rows.items()):
        y = 22 + ROW * number
        parts.append(f'<text class="a" x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
        for begin, end, text in found:
            x = _x(begin, seconds)
            width = max(2.0, _x(end, seconds) - x)
            colour = COLOURS[number % len(COLOURS)]
            box = (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}" fill-opacity=".75">'
            )
            parts.append(f"{box}<title>{escape(text)}</title></rect>")
    return "".join([*parts, "</svg>"])


def _open(height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">'


def _grid(seconds: float, top: int, height: int) -> str:
    parts = []
    for number in range(GRID + 1):
        at = seconds * number / GRID
        x = _x(at, seconds)
        parts.append(f'<line class="g" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + height}"/>')
        parts.append(f'<text class="a" x="{x:.1f}" y="{top + height + 14}" text-anchor="middle">{_time(at)}</text>')
    return "".join(parts)


def _x(at: float, seconds: float) -> float:
    share = min(1.0, max(0.0, at / seconds)) if seconds else 0.0
    return LEFT + (WIDTH - LEFT - 20) * share


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
