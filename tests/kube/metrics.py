"""Prometheus and kube-state-metrics next to the control plane, with the rules of the chart."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from tests.kube.cluster import Json
from tests.kube.layout import CONTROL_PLANE, NAMESPACE, PROMETHEUS_PORT, STATE_METRICS_PORT, Layout
from tests.kube.processes import Processes, wait_for
from tests.paths import REPOSITORY

RULES = REPOSITORY / "helm" / "shale" / "rules"
START_S = 90.0
STATE_METRICS = {
    "job_name": "kube-state-metrics",
    "honor_labels": True,
    "static_configs": [{"targets": [f"{CONTROL_PLANE}:{STATE_METRICS_PORT}"]}],
}
URL = f"http://{CONTROL_PLANE}:{PROMETHEUS_PORT}"


def targets(pods: Iterable[Json]) -> list[Json]:
    """Return the targets of Prometheus: every port named admin, with the labels of its pod.

    Debian's Prometheus has no discovery of Kubernetes; a pod keeps its address when its containers start again.
    """
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {"namespace": NAMESPACE, "pod": pod["metadata"]["name"], "container": container["name"]},
        }
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if port.get("name") == "admin"
    ]


def configuration(pods: Iterable[Json], *, state_metrics: bool) -> Mapping[str, Any]:
    """Return the configuration of Prometheus: the admin ports of pods, and kube-state-metrics if it runs."""
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES / "*.yaml")],
        "scrape_configs": [
            {"job_name": f"{NAMESPACE}/orders-shale", "static_configs": targets(pods)},
            *([STATE_METRICS] if state_metrics else []),
        ],
    }


def start(layout: Layout, processes: Processes, pods: Iterable[Json], *, state_metrics: bool) -> None:
    """Start Prometheus, and kube-state-metrics if asked for; return when Prometheus answers."""
    if state_metrics:
        start_state_metrics(layout, processes)
    file = layout.state / "prometheus.json"
    file.write_text(json.dumps(configuration(pods, state_metrics=state_metrics)))
    processes.start(
        "prometheus",
        [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={layout.state / 'prometheus'}",
            f"--web.listen-address={CONTROL_PLANE}:{PROMETHEUS_PORT}",
        ],
    )
    wait_for("Prometheus", START_S, lambda: query("vector(1)") or None)


def start_state_metrics(layout: Layout, processes: Processes) -> None:
    """Start kube-state-metrics for the namespace of the check."""
    processes.start(
        "kube-state-metrics",
        [
            str(layout.cache / "kube-state-metrics"),
            f"--kubeconfig={layout.kubeconfig('admin')}",
            f"--host={CONTROL_PLANE}",
            f"--port={STATE_METRICS_PORT}",
            "--telemetry-host=127.0.0.1",
            f"--namespaces={NAMESPACE}",
            "--resources=pods,deployments,jobs,cronjobs,poddisruptionbudgets",
        ],
    )


def query(expression: str) -> list[Json]:
    """Return the samples of an expression now."""
    found: list[Json] = _got(f"query?query={urllib.parse.quote(expression)}")["result"]
    return found


def alerts() -> list[Json]:
    """Return all pending and firing alerts."""
    found: list[Json] = _got("alerts")["alerts"]
    return found


def _got(path: str) -> Any:
    with urllib.request.urlopen(f"{URL}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]
