"""Draws simulation results as a PNG, or as a self-contained HTML page."""

import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shale.compaction.simulate.result import SimulationResult, SimulationSample

_GIB = 1024**3
_HOUR_S = 3600.0
_COLOURS = ("#1f77b4", "#d95f02", "#2a9d5c", "#8e44ad", "#b8860b", "#555555")


@dataclass(frozen=True, slots=True)
class PlotTarget:
    """The target file of a drawing."""

    path: Path

    def draw(self, results: "Sequence[SimulationResult]") -> None:
        """Draw the results into the file.

        Raises:
            InvalidRequestError: the file cannot be written.
        """
        if self.path.suffix == ".png":
            data = _image(results, format="png", dpi=120)
        else:
            data = _page(results, _image(results, format="svg", metadata={"Date": None}).decode()).encode()
        try:
            self.path.write_bytes(data)
        except OSError as error:
            raise InvalidRequestError(f"--plot {self.path}: {error.strerror}") from error


def plot_target(file: str) -> PlotTarget:
    """Check the file name and that matplotlib is installed, before the simulation runs.

    Raises:
        InvalidRequestError: the name ends neither in .png nor .html, the directory does not exist, or matplotlib is
            missing.
    """
    path = Path(file)
    if path.suffix not in (".png", ".html"):
        raise InvalidRequestError(f"--plot {file}: the file must be .png or .html")
    if not path.parent.is_dir():
        raise InvalidRequestError(f"--plot {file}: the directory {path.parent} does not exist")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise InvalidRequestError("--plot needs matplotlib: pip install 'shale[plots]'") from None
    return PlotTarget(path)


def _image(results: "Sequence[SimulationResult]", **saving: Any) -> bytes:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"font.size": 9, "svg.hashsalt": "shale", "svg.fonttype": "none"}):
        _figure(results).savefig(buffer, **saving)
    return buffer.getvalue()


def _figure(results: "Sequence[SimulationResult]") -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    sources, space, written, amplification = figure.subplots(2, 2).ravel()
    _lines(sources, results, "sorted sources (L0s and runs)", lambda at: at.l0_count + at.run_count)
    _lines(space, results, "stored, and live (dotted), GiB", lambda at: at.stored_bytes / _GIB)
    for index, result in enumerate(results):
        _line(space, result, index, lambda at: at.live_bytes / _GIB, linestyle=":")
    _lines(written, results, "written by compactions, GiB", lambda at: at.compacted_bytes / _GIB)
    _bars(amplification, results)
    for axes in (sources, space, written):
        axes.set_xlabel("hours")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    for index, result in enumerate(results):
        _stalls(sources, result, _colour(index))
    figure.legend(*sources.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def _lines(
    axes: "Axes", results: "Sequence[SimulationResult]", title: str, value: "Callable[[SimulationSample], float]"
) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    for index, result in enumerate(results):
        _line(axes, result, index, value, label=result.policy)


def _line(
    axes: "Axes", result: "SimulationResult", index: int, value: "Callable[[SimulationSample], float]", **style: Any
) -> None:
    hours = [sample.at_s / _HOUR_S for sample in result.samples]
    axes.plot(hours, [value(sample) for sample in result.samples], color=_colour(index), linewidth=1.2, **style)


def _stalls(axes: "Axes", result: "SimulationResult", colour: str) -> None:
    """Mark the times at which a flush waits on the time axis."""
    hours = [sample.at_s / _HOUR_S for sample in result.samples if sample.is_stalled]
    if hours:
        axes.plot(hours, [0.0] * len(hours), marker="|", linestyle="", color=colour, clip_on=False)


def _bars(axes: "Axes", results: "Sequence[SimulationResult]") -> None:
    axes.set_title("amplification: mean / greatest (pale)", loc="left", fontsize=10)
    groups = ("write", "space", "read")
    width = 0.8 / len(results)
    for index, result in enumerate(results):
        means = (result.write_amplification, result.space_amplification, result.read_amplification)
        greatest = (result.write_amplification, result.space_amplification_max, result.read_amplification_max)
        places = [group + index * width for group in range(len(groups))]
        axes.bar(places, means, width * 0.9, color=_colour(index))
        pale = axes.bar(places, greatest, width * 0.9, color=_colour(index), alpha=0.25)
        axes.bar_label(pale, [_span(*pair) for pair in zip(means, greatest, strict=True)], fontsize=7, padding=1)
    axes.set_xticks([group + 0.4 - width / 2 for group in range(len(groups))], groups)
    axes.grid(visible=True, axis="y", alpha=0.3)


def _span(mean: float, greatest: float) -> str:
    return f"{mean:.1f}" if mean == greatest else f"{mean:.1f}/{greatest:.2g}"


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _page(results: "Sequence[SimulationResult]", svg: str) -> str:
    from shale_cli.commands.compaction.simulated_table import COLUMNS, table_row

    def row(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    table = [row("th", [name.replace("_", " ") for name in COLUMNS])]
    table += [row("td", [table_row(result)[name] for name in COLUMNS]) for result in results]
    drawing = svg[svg.index("<svg") :]
    style = (
        "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:1100px;color:#222}"
        "table{border-collapse:collapse;margin:1em 0}"
        "th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ccc}"
        "th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Compaction policies</title>'
        f"<style>{style}</style></head>\n<body><h1>Compaction policies</h1>\n"
        f"<p>{results[0].duration_s / _HOUR_S:.1f} hours, simulated.</p>\n<table>{''.join(table)}</table>\n"
        f"{drawing}\n</body></html>\n"
    )
