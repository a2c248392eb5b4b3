"""What monitoring sees of a daemon that ends for good: its own metric, and that of kube-state-metrics.

A second writer, outside the release, takes the role.  The writer of the release ends because it is fenced, and its
restart takes the role back.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.kube import metrics, release
from tests.kube.cluster import Json
from tests.kube.load.history import longest_gap
from tests.kube.processes import wait_for
from tests.kube.scenarios import BACK_S, Stage, another, one_pod, wait_roles

FENCED = 80
"""The exit code of a fenced process (docs/reference/exit-codes.md)."""
SEEN_S = 300.0
RIVAL = "rival"
ALERT = "SlateDBFenced"
"""Fires for a database, by the daemon's own metric, and for a pod, by that of kube-state-metrics."""

SOURCES = {"shale_exit_code": "db", "kube_pod_container_status_last_terminated_exitcode": "pod"}
"""Metrics of the exit code, and the label that the alert has by each: first the daemon's, then kube-state-metrics'."""


def rival(pod: Json) -> Mapping[str, Any]:
    """Return a pod that does the same as a given one, but belongs to no Deployment and to no Service."""
    kept = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "restartPolicy")}
    labels = {"app.kubernetes.io/component": RIVAL}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": RIVAL, "labels": labels},
        "spec": {**kept, "restartPolicy": "Never"},
    }


def check(stage: Stage, *, state_metrics: bool) -> None:
    """Fence the writer; find its exit code in the metrics, and the release as before.

    Without kube-state-metrics, only the metric and the alert of the daemon are looked for.
    """
    sources = list(SOURCES.items())[: None if state_metrics else 1]
    fenced, start = one_pod(stage, "writer"), time.monotonic()
    stage.cluster.apply(rival(fenced))
    for metric in (metric for metric, _ in sources):
        labels = f'container="writer",pod=~"{release.FULL_NAME}-.*"'
        _, took_s = wait_for(metric, SEEN_S, partial(_samples, f"{metric}{{{labels}}} == {FENCED}"))
        stage.report.add(f"exit code {FENCED} in {metric}", took_s)
    for label in (label for _, label in sources):
        _, took_s = wait_for(f"{ALERT} by {label}", SEEN_S, partial(_firing, label))
        stage.report.add(f"{ALERT} by {label}", took_s)
    stage.cluster.kubectl("delete", "pod", RIVAL, "--grace-period=0", "--force")
    # The fenced process keeps its admin port for a while, and its pod counts as ready until probes failed.
    wait_for("a restarted writer", BACK_S, partial(another, stage, fenced))
    first = stage.workload.wait_acknowledged(time.monotonic())
    stage.report.add("no write acknowledged after a rival", longest_gap(stage.workload.writes(), start, first))
    wait_roles(stage)
    stage.report.fact("a rival writer", f"{stage.workload.check()} acknowledged writes, none lost")


def _samples(expression: str) -> list[Json] | None:
    return metrics.query(expression) or None


def _firing(label: str) -> list[Json] | None:
    labels = [alert["labels"] for alert in metrics.alerts() if alert["state"] == "firing"]
    return [found for found in labels if found["alertname"] == ALERT and label in found] or None
