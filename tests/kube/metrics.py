"""Prometheus and kube-state-metrics next to the control plane, with the rules of the chart."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
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


def configuration(layout: Layout, *, state_metrics: bool) -> Mapping[str, Any]:
    """Return the configuration of Prometheus: every pod with a port named admin, and kube-state-metrics if it runs."""
    discovery = {
        "role": "pod",
        "kubeconfig_file": str(layout.kubeconfig("admin")),
        "namespaces": {"names": [NAMESPACE]},
    }
    labels = {
        "namespace": "__meta_kubernetes_namespace",
        "pod": "__meta_kubernetes_pod_name",
        "container": "__meta_kubernetes_pod_container_name",
    }
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES / "*.yaml")],
        "scrape_configs": [
            {
                "job_name": f"{NAMESPACE}/orders-shale",
                "kubernetes_sd_configs": [discovery],
                "relabel_configs": [
                    {
                        "source_labels": ["__meta_kubernetes_pod_container_port_name"],
                        "regex": "admin",
                        "action": "keep",
                    },
                    *({"source_labels": [source], "target_label": name} for name, source in labels.items()),
                ],
            },
            *([STATE_METRICS] if state_metrics else []),
        ],
    }


def start(layout: Layout, processes: Processes, *, state_metrics: bool) -> None:
    """Start Prometheus, and kube-state-metrics if asked for; return when Prometheus answers."""
    if state_metrics:
        start_state_metrics(layout, processes)
    file = layout.state / "prometheus.json"
    file.write_text(json.dumps(configuration(layout, state_metrics=state_metrics)))
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
