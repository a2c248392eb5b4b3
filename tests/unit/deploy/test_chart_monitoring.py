"""Rules and dashboards: those of a cluster (``shale-mixin``), and those of one release."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.external_tools import require_tool

from .chart import FULL, MINIMAL, MIXIN, Manifest, manifests, of_kind, render

MARK = 'helm_release="storage/r-shale"'
OWN = re.compile(r"(?<![\w:\"])(?:[a-z_]+:)?(?:slatedb|shale|process|python)_[a-z0-9_]+(?::[a-z0-9_]+)*(?![\w:])")


def rules_of(rule_object: Manifest) -> Iterator[Manifest]:
    for group in rule_object["spec"]["groups"]:
        yield from group["rules"]


def board_of(config: Manifest) -> Any:
    (text,) = config["data"].values()
    return json.loads(text)


def test_rules_and_dashboards_are_shipped() -> None:
    objects = render(*FULL)
    alerts = {rule["alert"]: rule for rule in rules_of(objects["PrometheusRule", ""]) if "alert" in rule}
    assert len(alerts) > 40
    assert "ShaleRESPErrors" not in alerts
    notes = alerts["SlateDBReaderStale"]["annotations"]
    assert notes["runbook_url"] == "https://runbooks.example/shale/SlateDBReaderStale"
    board = board_of(objects["ConfigMap", "dashboard-reader"])
    assert notes["dashboard_url"] == f"https://grafana.example/d/{board['uid']}"
    assert "{{ $labels.instance }}" in notes["description"]
    assert board["title"] == "SlateDB / storage/r-shale / Reader"


def test_rules_of_a_release_see_its_series_only() -> None:
    objects = render(*FULL)
    relabeled = objects["PodMonitor", ""]["spec"]["podMetricsEndpoints"][0]["relabelings"][0]
    assert relabeled == {"targetLabel": "helm_release", "replacement": "storage/r-shale"}
    seen = 0
    for rule in rules_of(objects["PrometheusRule", ""]):
        assert rule["labels"]["helm_release"] == "storage/r-shale"
        for name in OWN.finditer(rule["expr"]):
            if name.group() != "helm_release":
                assert rule["expr"][name.end() :].startswith(f"{{{MARK}"), (name.group(), rule["expr"])
                seen += 1
    assert seen > 80


def test_dashboards_of_a_release_see_its_series_only() -> None:
    boards = [board_of(each) for name, each in of_kind(render(*FULL), "ConfigMap").items() if "dashboard-" in name]
    assert len(boards) >= 8
    for board in boards:
        for panel in board["panels"]:
            assert all(MARK in target["expr"] for target in panel.get("targets", []))
        for variable in board["templating"]["list"]:
            assert variable["type"] != "query" or MARK in variable["query"]


@pytest.mark.parametrize("selector", ["", 'namespace="storage", db=~"orders|users"'])
def test_promtool_reads_the_rules_of_a_release(selector: str, tmp_path: Path) -> None:
    escaped = selector.replace(",", "\\,")
    rule_object = render(*FULL, "--set", f"metrics.prometheusRule.selector={escaped}")["PrometheusRule", ""]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule_object["spec"]["groups"]}))
    command = [require_tool("promtool"), "check", "rules", "--lint=none", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    if selector:
        assert all("helm_release" not in str(rule) for rule in rules_of(rule_object))


def test_a_selector_does_without_the_pod_monitor() -> None:
    values = 'metrics.prometheusRule.enabled=true,metrics.prometheusRule.selector=db="orders"'
    objects = render(*MINIMAL, "--set", values)
    assert ("PodMonitor", "") not in objects
    assert any('{db="orders"' in rule["expr"] for rule in rules_of(objects["PrometheusRule", ""]))


def test_the_mixin_has_the_rules_and_dashboards_of_a_cluster() -> None:
    values = (
        "--set",
        "prometheusRule.runbookBaseUrl=https://runbooks.example/,prometheusRule.disabled={SlateDBGCDown}",
    )
    objects = manifests(*values, release="mixin", chart=str(MIXIN))
    (rule_object,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    rendered = {rule.get("alert", rule.get("record")): rule for rule in rules_of(rule_object)}
    sources = [yaml.safe_load(file.read_text()) for file in sorted((MIXIN / "rules").glob("*.yaml"))]
    rules = [rule for tree in sources for group in tree["groups"] for rule in group["rules"]]
    wanted = {rule.get("alert", rule.get("record")): rule for rule in rules}
    assert rendered.keys() == wanted.keys() - {"SlateDBGCDown"}
    assert all(rule["expr"] == wanted[name]["expr"] for name, rule in rendered.items())
    assert rendered["SlateDBWriterDown"]["annotations"]["runbook_url"] == "https://runbooks.example/SlateDBWriterDown"
    boards = [board_of(each)["uid"] for each in objects if each["kind"] == "ConfigMap"]
    assert sorted(boards) == sorted(f"slatedb-{file.stem}" for file in (MIXIN / "dashboards").glob("*.json"))
    for each in objects:
        assert len(json.dumps(each)) < 1024 * 1024
