"""What is made of rules, runbooks and panels: ``generate.py`` writes it, a test compares it (``make gen``).

Made are ``docs/runbooks/index.md``, ``dashboards/*.json`` in the classic form that Grafana 10 to 13 load from files,
and the charts' copies of rules and dashboards: a chart can only name files of its own.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHARTS = (ROOT / "helm" / "shale", ROOT / "helm" / "shale-mixin")
sys.path.insert(0, str(HERE))

from panels.pages import DASHBOARDS  # noqa: E402 - a package beside this script
from panels.panel import Dashboard, Panel, Row  # noqa: E402

WINDOW_FLOOR_S = 5
"""A rate needs four scrapes, one a second."""
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
VARIABLES = ("cluster", "namespace", "db", "instance")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
PRICES = (("price_write", "Price of 1,000 writes or lists", "0.005"), ("price_read", "Price of 1,000 reads", "0.0004"))
"""The prices of a class of requests that a page may show: the name, what it is, and the price at S3 in us-east-1."""

EPOCHS = ("Take-overs of the writer", "max by (db) (changes(slatedb_manifest_writer_epoch{$all}[1m])) > 0")
COMPACTORS = ("Take-overs of the compactor", "max by (db) (changes(slatedb_compactor_epoch{$all}[1m])) > 0")
DEPLOYMENTS = (
    "Deployments",
    "count by (component, version) (shale_build_info{$all}) unless count by (component, version) "
    "(shale_build_info{$all} offset 2m)",
)
FENCING = ("Fencing", "sum by (db, component) (increase(slatedb_fenced_total{$all}[1m])) > 0")
PRESSURE = ("Back-pressure", "sum by (db) (rate(slatedb_db_backpressure_total{$all}[1m])) > 0")
FIRING = ("Firing alerts", 'ALERTS{alertname=~"SlateDB.*|Shale.*", alertstate="firing"}')


def alerts() -> Iterator[dict[str, Any]]:
    """Every alert of the rules, file by file."""
    for file in sorted((HERE / "rules").glob("*.yaml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from (rule for rule in group["rules"] if "alert" in rule)


EXAMPLE = """\
database:
  url: s3://bucket/orders
objectStore:
  existingSecret: orders-store
auth:
  existingSecret: orders-tokens
  secretKey: ""
  roleKeys: {read: read, write: write, admin: admin}
reader:
  enabled: true
compactor:
  embeddedWorker: false
worker:
  replicas: 2
backup:
  enabled: true
  schedule: "30 2 * * *"
  url: s3://other-bucket/orders
"""
"""Values of the release that the runbooks name."""


def index() -> str:
    """The page that lists the runbooks."""
    listed = sorted(alerts(), key=lambda each: str(each["alert"]))
    others = sorted(set((ROOT / "docs" / "runbooks").glob("*.md")) - {ROOT / "docs" / "runbooks" / "index.md"})
    names = {str(alert["alert"]) for alert in listed}
    lines = [
        "# Runbooks",
        "",
        "`make gen` makes this page. All commands and queries name one release, `orders` in namespace",
        "`orders`, with these values; a test compares every name with what the chart renders from them:",
        "",
        "```yaml",
        *EXAMPLE.splitlines(),
        "```",
        "",
        "A pod has the settings of its release, so `shale` in a pod needs no `--url`. Commands that read",
        "rows, `kv` and `verify`, run in the pod of the writer, a reader or the compactor: with",
        "[encryption](../how-to/encryption.md) the gc has no keys. Queries name the database by its label",
        "`db`, which is the path or `database.alias`.",
        "",
        "## Situations",
        "",
    ]
    for page in others:
        if page.stem not in names:
            title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({page.name})")
    lines += ["", "## Alerts", "", "One page for each alert of `deploy/observability/rules`.", ""]
    for alert in listed:
        name, severity = alert["alert"], alert["labels"]["severity"]
        lines += [f"- [{name}]({name}.md), {severity}:", f"  {alert['annotations']['summary']}"]
    return "\n".join((*lines, ""))


def selected(expression: str, *, with_db: bool) -> str:
    """An expression with the dashboard's variables in every selector that says ``$all``."""
    names = [name for name in VARIABLES if with_db or name != "db"]
    return expression.replace("$all", ", ".join(f'{name}=~"${name}"' for name in names))


def dashboard_json(dashboard: Dashboard) -> str:
    """One dashboard in canonical form."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        panels.append({"type": "row", "title": row.title, "id": len(panels) + 1, "gridPos": _place(0, y, 24, 1)})
        panels += _panels(row, len(panels) + 1, y + 1)
        y += 1 + HEIGHT * -(-len(row.panels) // COLUMNS)
    tree = {
        "uid": f"slatedb-{dashboard.uid}",
        "title": f"SlateDB / {dashboard.title}",
        "description": dashboard.description,
        "tags": ["slatedb"],
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "utc",
        "schemaVersion": 39,
        "links": [
            {"type": "dashboards", "tags": ["slatedb"], "asDropdown": True, "title": "SlateDB", "keepTime": True}
        ],
        "annotations": {
            "list": [
                _annotation(*each) for each in enumerate((EPOCHS, COMPACTORS, DEPLOYMENTS, FENCING, PRESSURE, FIRING))
            ]
        },
        "templating": {"list": [*_variables(), *_prices(panels)]},
        "panels": panels,
    }
    return json.dumps(tree, indent=1, sort_keys=True) + "\n"


def _panels(row: Row, first_id: int, y: int) -> Iterator[dict[str, Any]]:
    for place, panel in enumerate(row.panels):
        x, line = place % COLUMNS, place // COLUMNS
        yield _panel(panel, first_id + place, _place(x * WIDTH, y + line * HEIGHT, WIDTH, HEIGHT))


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    stat, heatmap = panel.kind == "stat", panel.kind == "heatmap"
    defaults: dict[str, Any] = {} if heatmap else {"unit": panel.unit}
    if not stat and not heatmap:
        defaults |= {"min": 0, "custom": {"fillOpacity": 10}}
    if panel.threshold is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.threshold}]
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}} if stat else {"tooltip": {"mode": "multi"}}
    if heatmap:
        options = {"calculate": False, "yAxis": {"unit": panel.unit}, "color": {"scheme": "Oranges", "mode": "scheme"}}
    targets = [
        {
            "refId": chr(ord("A") + number),
            "expr": selected(expression, with_db=panel.with_db),
            "legendFormat": legend,
            "datasource": DATASOURCE,
            "exemplar": panel.unit == "s" and not stat and not heatmap,
            "format": "heatmap" if heatmap else "time_series",
        }
        for number, (legend, expression) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _annotation(number: int, what: tuple[str, str]) -> dict[str, Any]:
    name, expression = what
    shown = {"name": name, "enable": number < 2, "iconColor": "orange", "datasource": DATASOURCE, "titleFormat": name}
    return {**shown, "expr": selected(expression, with_db=True)}


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus"}
    above: list[str] = []
    for name in VARIABLES:
        metric = "slatedb_manifest_id" if name == "db" else "shale_build_info"
        within = ", ".join(f'{each}=~"${each}"' for each in above if each != "db")
        query = f"label_values({metric}{{{within}}}, {name})"
        choice = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        yield {
            "name": name,
            "type": "query",
            "query": query,
            "datasource": DATASOURCE,
            "refresh": 2,
            "sort": 1,
            **choice,
        }
        above.append(name)


def _prices(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The variables of prices that an expression uses."""
    shown = json.dumps(panels)
    for name, label, price in PRICES:
        if f"${name}" in shown:
            yield {
                "name": name,
                "label": label,
                "type": "textbox",
                "query": price,
                "current": {"text": price, "value": price},
            }


def files() -> dict[Path, str]:
    """Everything that is made, by where it lies."""
    made = {ROOT / "docs" / "runbooks" / "index.md": index()}
    for each in DASHBOARDS:
        text = dashboard_json(each)
        made[HERE / "dashboards" / f"{each.uid}.json"] = text
        made |= {chart / "dashboards" / f"{each.uid}.json": text for chart in CHARTS}
    for file in sorted((HERE / "rules").glob("*.yaml")):
        made |= {chart / "rules" / file.name: file.read_text() for chart in CHARTS}
    return made


def shortened(rules: str, divisor: int) -> str:
    """Return rules whose times are divided, for a check that cannot wait an hour; none is shorter than the floor."""

    def shorter(match: re.Match[str], floor_s: int) -> str:
        seconds = int(match[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[3]] // divisor
        return f"{match[1]}{max(floor_s, seconds)}s{match[4]}"

    times = r"(\[(?=\w+\])|offset )(\d+)([smhd])(\]?)"
    windows = re.sub(times, lambda match: shorter(match, WINDOW_FLOOR_S), rules)
    return re.sub(r"(for: )(\d+)([smhd])()", lambda match: shorter(match, 0), windows)


def main() -> None:
    """Write everything, or with ``--rules`` only shortened rules, into that directory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rules", type=Path, help="write only rules, and there")
    parser.add_argument("--divisor", type=int, default=1, help="divide the times of these rules by this number")
    arguments = parser.parse_args()
    made = files()
    if arguments.rules is not None:
        sources = sorted((HERE / "rules").glob("*.yaml"))
        made = {arguments.rules / each.name: shortened(each.read_text(), arguments.divisor) for each in sources}
    for file, text in made.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
