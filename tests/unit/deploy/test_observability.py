"""Rules, runbooks and dashboards agree with each other and with the metrics."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.spec import MetricKind
from tests.external_tools import require_tool
from tests.paths import REPOSITORY

from .alert_cases import CASES, MORE_CASES

HERE = REPOSITORY / "deploy" / "observability"
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
RULES = sorted((HERE / "rules").glob("*.yaml"))
HEADINGS = ["Symptom", "Impact", "Diagnosis", "Mitigation", "Verify", "Escalation", "Prevention", "Never"]
NOT_OURS = {
    "container_memory_working_set_bytes", "container_spec_memory_limit_bytes",
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "python_gc_collections_total",
}  # fmt: skip
NAME = re.compile(r"(?<![\w:{\"$.-])((?:slatedb|shale|container|process|python)_[a-z0-9_]+)(?![\w:(])")


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observability_generate", HERE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(HERE))
    return module


script = load_script()
RULE_LIST: list[dict[str, Any]] = [
    rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULE_LIST if "alert" in rule}


def known_metrics() -> set[str]:
    """Return every exposed metric name."""
    names = set(CATALOGUE) | NOT_OURS
    for spec in CATALOGUE.values():
        if spec.kind is MetricKind.HISTOGRAM:
            names |= {f"{spec.name}_{end}" for end in ("bucket", "count", "sum")}
    return names


def dashboards() -> Iterator[Any]:
    for file in sorted((HERE / "dashboards").glob("*.json")):
        yield json.loads(file.read_text())


def expressions(tree: Any) -> Iterator[str]:
    """Return every expression of a dashboard."""
    for panel in tree["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    yield from (each["expr"] for each in tree["annotations"]["list"])


def test_generated_files_are_current() -> None:
    stale = [str(file.relative_to(REPOSITORY)) for file, text in script.files().items() if file.read_text() != text]
    assert stale == [], "run make gen"


def test_shortened_rules_divide_every_time() -> None:
    text = "expr: rate(a[5m]) / b[30m:] + c[1d] offset 15m\nfor: 10m\nfor: 0m\n"
    assert script.shortened(text, 60) == "expr: rate(a[5s]) / b[30m:] + c[1440s] offset 15s\nfor: 10s\nfor: 0s\n"
    for file in RULES:
        assert len(yaml.safe_load(script.shortened(file.read_text(), 60))["groups"]) > 0


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    pages = {file.stem for file in RUNBOOKS.glob("S*.md")}
    assert pages == set(ALERTS)
    assert len(ALERTS) > 40


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is(name: str) -> None:
    alert = ALERTS[name]
    assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert not re.search(r"\{\{", notes["summary"])
    assert notes["runbook_url"].endswith(f"/{name}")
    uid = notes["dashboard_url"].rpartition("/")[2]
    assert uid in {tree["uid"] for tree in dashboards()}
    page = (RUNBOOKS / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n\nSeverity: {alert['labels']['severity']} · ")
    assert re.findall(r"^## (.+)", page, re.MULTILINE) == HEADINGS
    assert "".join(alert["expr"].split()) in "".join(page.split())
    linked = set(re.findall(r"\b((?:SlateDB|Shale)[A-Z]\w+)", page))
    assert linked <= set(ALERTS)


def test_metrics_of_rules_runbooks_and_dashboards_are_measured() -> None:
    texts = [str(rule["expr"]) for rule in RULE_LIST]
    texts += [code for file in RUNBOOKS.glob("S*.md") for code in re.findall(r"`([^`]+)`", file.read_text())]
    texts += [expression for tree in dashboards() for expression in expressions(tree)]
    named = {name for text in texts for name in NAME.findall(text)}
    assert len(named) > 60
    assert named <= known_metrics()


def test_dashboards_show_every_metric() -> None:
    shown = {name for tree in dashboards() for text in expressions(tree) for name in NAME.findall(text)}
    shown = {re.sub("_(bucket|count|sum)$", "", name) for name in shown}
    assert set(CATALOGUE) - shown == set()


def test_a_heatmap_shows_the_buckets_of_a_histogram() -> None:
    maps = [panel for tree in dashboards() for panel in tree["panels"] if panel["type"] == "heatmap"]
    assert len({panel["title"] for panel in maps}) >= 3
    for panel in maps:
        (target,) = panel["targets"]
        assert target["format"] == "heatmap"
        assert "sum by (le)" in target["expr"]
        assert CATALOGUE[NAME.findall(target["expr"])[0].removesuffix("_bucket")].kind is MetricKind.HISTOGRAM


@pytest.mark.parametrize("tree", list(dashboards()), ids=lambda tree: tree["uid"])
def test_dashboards_are_safe_to_ship(tree: Any) -> None:
    assert tree["editable"] is False
    names = [each["name"] for each in tree["templating"]["list"]]
    assert names[: 1 + len(script.VARIABLES)] == ["datasource", *script.VARIABLES]
    used = set(re.findall(r"\$(price_\w+)", json.dumps(tree["panels"])))
    assert set(names[1 + len(script.VARIABLES) :]) == used
    panels = [panel for panel in tree["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert all(panel["description"] for panel in panels)
    assert len({panel["id"] for panel in tree["panels"]}) == len(tree["panels"])
    for panel in panels:
        mentioned = set(re.findall(r"\b((?:SlateDB|Shale)[A-Z]\w+)", panel["description"]))
        assert mentioned <= set(ALERTS)
        for target in panel["targets"]:
            assert "$all" not in target["expr"]
            assert 'instance=~"$instance"' in target["expr"]


def promtool(*arguments: str) -> None:
    ended = subprocess.run([require_tool("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_has_cases() -> None:
    assert set(CASES) == set(ALERTS)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=lambda file: file.stem)
@pytest.mark.parametrize("step", ["1m", "1h"])
def test_alerts_fire_when_they_should_and_only_then(rules: Path, step: str, tmp_path: Path) -> None:
    """One file per alert, and steps as long as the alerts look back: promtool evaluates every rule at every step."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    names = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    cases = [(name, case) for name, case in (*CASES.items(), *MORE_CASES) if name in names and case.step == step]
    tests = []
    for name, case in cases:
        for series, samples in ((case.firing, [{"labels": "{}", "value": 1}]), (case.quiet, [])):
            expression = f'count(count by (alertname) (ALERTS{{alertname="{name}", alertstate="firing"}}))'
            wanted = {"expr": expression, "eval_time": case.at, "exp_samples": samples}
            inputs = [{"series": key, "values": values} for key, values in series.items()]
            tests.append({"name": name, "interval": step, "input_series": inputs, "promql_expr_test": [wanted]})
    file = tmp_path / "tests.yaml"
    # With steps of an hour, a rule sees what another one records only if it is evaluated after that one.
    order = [group["name"] for group in groups]
    suite = {"rule_files": [str(rules)], "evaluation_interval": step, "group_eval_order": order, "tests": tests}
    file.write_text(yaml.safe_dump(suite))
    promtool("test", "rules", str(file))


def test_the_query_language_of_dashboards(tmp_path: Path) -> None:
    """Check expressions as recording rules, with Grafana's variables replaced by values."""
    found = [expression for tree in dashboards() for expression in expressions(tree)]
    plain = [
        re.sub(r"\$price_\w+", "0.005", re.sub(r"\$(cluster|namespace|db|instance)", ".*", text)).replace(
            "$__rate_interval", "1m"
        )
        for text in found
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))
