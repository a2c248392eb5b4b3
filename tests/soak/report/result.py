"""What a run found, as plain values."""

import json
import platform
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.checker.anomaly import Findings
from tests.soak.history import journal
from tests.soak.report.series import Series, series_of
from tests.soak.stack.previous import current_commit

if TYPE_CHECKING:
    from tests.soak.run.soak import Soak

SHOWN_MAX = 50


@dataclass(frozen=True)
class Verdict:
    """One line of the judgement."""

    name: str
    is_good: bool
    found: tuple[str, ...]
    more: str = ""


@dataclass
class Result:
    """Everything that the report shows."""

    summary: dict[str, Any]
    verdicts: list[Verdict]
    anomalies: list[dict[str, Any]]
    faults: list[dict[str, Any]]
    exits: list[dict[str, Any]]
    series: Series
    memory: dict[str, list[tuple[float, int]]]

    @property
    def is_good(self) -> bool:
        """Whether every verdict is good."""
        return all(verdict.is_good for verdict in self.verdicts)

    @classmethod
    def of(cls, soak: "Soak", verdicts: list[Verdict], rows: int, findings: Findings) -> "Result":
        """Collect what a run has left."""
        site, options = soak.site, soak.options
        begin, end = soak.begin_at, soak.load_ended_at
        series = series_of(journal.operations(site.history), begin, end)
        injected = Counter(event.kind for event in site.events.all if event.fault is not None)
        summary = {
            "seed": options.seed,
            "seconds": round(end - begin, 1),
            "repeat": options.command(options.seed),
            "commit": current_commit(),
            "previous": site.previous[0] if site.previous is not None else "none",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "packages": _packages(),
            "store": site.store.name + (" on a file system in memory" if site.store.is_on_tmpfs else ""),
            "network": "namespaces" if "namespaces" in site.abilities else "loopback",
            "faults left out": ", ".join(soak.left_out) or "none",
            "memory limit": f"{options.memory_limit_bytes >> 20} MiB",
            "rows at the end": rows,
            "operations": {name: sum(each[name] for each in series.by_interface.values()) for name in _OUTCOMES},
            "writers that served": len(series.takeovers),
            "longest time without an acknowledged write": f"{series.longest_pause_s:.1f} s",
            "requests to the store": site.store.counts(),
            "faults": dict(sorted(injected.items())),
        }
        faults = [
            {**asdict(event), "at": event.at - begin, "until": None if event.until is None else event.until - begin}
            for event in site.events.all
        ]
        exits = [
            {
                "instance": each.instance,
                "version": each.version,
                "code": each.code,
                "at": each.at - begin,
                "injected": each.injected,
            }
            for each in site.supervisor.exits
        ]
        memory = {node: [(at - begin, size) for at, size in samples] for node, samples in site.memory.samples.items()}
        anomalies = [
            {
                "kind": each.kind,
                "where": each.where,
                "text": each.text,
                "operations": [operation.line(begin) for operation in each.operations],
            }
            for each in findings.anomalies[:SHOWN_MAX]
        ]
        return cls(summary, verdicts, anomalies, faults, exits, series, memory)

    def write_json(self, file: Path) -> None:
        """Write everything except the samples."""
        content = {
            "is_good": self.is_good,
            "summary": self.summary,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "anomalies": self.anomalies,
            "events": self.faults,
            "exits": self.exits,
            "by_interface": self.series.by_interface,
            "by_function": self.series.by_function,
            "takeovers": [(at - self.series.begin, name) for at, name in self.series.takeovers],
        }
        file.write_text(json.dumps(content, indent=1))


_OUTCOMES = ("ok", "fail", "unknown")


def _packages() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("shale", "slatedb", "obstore", "uvloop"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found) + f", on {sys.platform}"
