"""The report as one HTML file."""

from collections.abc import Mapping
from html import escape
from typing import Any

from tests.soak.report import timeline
from tests.soak.report.result import Result

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1160px; margin: 24px auto; padding: 0 16px; color: #1f2328 }
h1 { font-size: 22px } h2 { font-size: 17px; margin-top: 28px; border-bottom: 1px solid #d0d7de }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: 3px 10px 3px 0; vertical-align: top }
th { font-weight: 600 } tr { border-bottom: 1px solid #eaeef2 }
pre { background: #f6f8fa; padding: 8px; overflow-x: auto; font-size: 12px; white-space: pre-wrap }
.good { color: #1a7f37; font-weight: 600 } .bad { color: #d1242f; font-weight: 600 }
svg text.t { font: 600 13px system-ui } svg text.a { font: 11px system-ui; } svg line.g { stroke: #d8dee4 }
svg { margin-top: 10px }
"""
INTRODUCTION = """Processes of Shale and of the slatedb package worked on one database while faults were injected.
Clients recorded every operation with its begin, end and outcome: <i>ok</i>, <i>fail</i> (it had no effect) or
<i>unknown</i> (no answer: it may have had one). A checker then looked for an order of all operations that explains
every answer. A line with <span class="bad">fail</span> below means that a promise was broken, and says by what."""
SHOWN_MAX, FOUND_MAX = 20, 6


def render(result: Result) -> str:
    """Return the document."""
    state = '<span class="good">passed</span>' if result.is_good else '<span class="bad">failed</span>'
    sections = [
        f"<h1>Soak with seed {result.summary['seed']}: {state}</h1><p>{INTRODUCTION}</p>",
        "<h2>Verdicts</h2>" + _verdicts(result),
        "<h2>Anomalies</h2>" + _anomalies(result) if result.anomalies else "",
        "<h2>What happened when</h2><p>Point at a bar to see what was done. Times are minutes and seconds.</p>",
        _charts(result),
        "<h2>Operations</h2>" + _counts("interface", result.series.by_interface),
        _counts("operation", result.series.by_function),
        "<h2>Ends of processes</h2>" + _exits(result),
        "<h2>This run</h2>" + _summary(result.summary),
        f"<p>The same faults at the same times:</p><pre>{escape(result.summary['repeat'])}</pre>",
    ]
    head = f'<meta charset="utf-8"><title>Soak {result.summary["seed"]}</title><style>{STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(sections)}</body></html>"


def _verdicts(result: Result) -> str:
    rows = []
    for verdict in result.verdicts:
        state = '<td class="good">pass</td>' if verdict.is_good else '<td class="bad">fail</td>'
        found = "".join(f"<pre>{escape(text)}</pre>" for text in verdict.found[:FOUND_MAX])
        rest = len(verdict.found) - FOUND_MAX
        found += f"<p>and {rest} more</p>" if rest > 0 else ""
        rows.append(f"<tr>{state}<td>{escape(verdict.name)}{found}</td><td>{escape(verdict.more)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _anomalies(result: Result) -> str:
    parts = []
    for each in result.anomalies[:SHOWN_MAX]:
        operations = "\n".join(each["operations"])
        title = f"<b>{escape(each['kind'])}</b> in {escape(each['where'])}: {escape(each['text'])}"
        parts.append(f"<p>{title}</p><pre>{escape(operations)}</pre>")
    return "".join(parts)


def _charts(result: Result) -> str:
    seconds = float(result.summary["seconds"])
    series = result.series
    times = [series.width_s * (number + 0.5) for number in range(len(series.buckets))]
    injected: dict[str, list[tuple[float, float, str]]] = {}
    for event in result.faults:
        end = event["until"] if event["until"] is not None else event["at"]
        text = f"{event['kind']} of {event['target']} at {event['at']:.1f} s: {event['text']}"
        injected.setdefault(event["kind"], []).append((event["at"], end, text))
    served: dict[str, list[tuple[float, float, str]]] = {}
    ends = [at - series.begin for at, _ in series.takeovers[1:]] + [seconds]
    for (at, name), end in zip(series.takeovers, ends, strict=True):
        node = name.partition(".")[0]
        node = "the wheel's writer" if node.startswith("wheel") else node
        served.setdefault(node, []).append((at - series.begin, end, f"{name} from {at - series.begin:.1f} s"))
    rates = {name: list(zip(times, series.rates(name), strict=True)) for name in ("ok", "unknown", "fail")}
    latencies = {
        f"p{share:.0%}".rstrip("%"): list(zip(times, series.latency(share), strict=True)) for share in (0.5, 0.99)
    }
    memory = {
        node: [(at, size / (1 << 20)) for at, size in samples]
        for node, samples in result.memory.items()
        if not node.startswith(("client-", "s3-", "wheel-"))
    }
    return "".join(
        [
            timeline.bars("injected faults", seconds, dict(sorted(injected.items()))),
            timeline.bars("which writer answered", seconds, served),
            timeline.lines("operations per second", "/s", seconds, rates),
            timeline.lines("latency of operations that succeeded", "ms", seconds, latencies),
            timeline.lines("resident memory of daemons", "MiB", seconds, memory),
        ]
    )


def _counts(name: str, table: Mapping[str, Mapping[str, int]]) -> str:
    head = f"<tr><th>{name}</th><th>ok</th><th>fail</th><th>unknown</th></tr>"
    rows = [
        f"<tr><td>{escape(key)}</td>"
        + "".join(f"<td>{counts[each]}</td>" for each in ("ok", "fail", "unknown"))
        + "</tr>"
        for key, counts in sorted(table.items())
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def _exits(result: Result) -> str:
    counts: dict[tuple[str, int, str], int] = {}
    for each in result.exits:
        key = (each["instance"].rpartition(".")[0], each["code"], each["injected"] or "by itself")
        counts[key] = counts.get(key, 0) + 1
    head = "<tr><th>process</th><th>exit code</th><th>ended by</th><th>times</th></tr>"
    rows = [
        f"<tr><td>{escape(name)}</td><td>{code}</td><td>{escape(why)}</td><td>{count}</td></tr>"
        for (name, code, why), count in sorted(counts.items())
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def _summary(summary: Mapping[str, Any]) -> str:
    rows = []
    for name, value in summary.items():
        text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else str(value)
        rows.append(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
