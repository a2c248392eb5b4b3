"""The release of the chart: install, test, upgrade in stages, uninstall."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.kube import store
from tests.kube.cluster import Cluster
from tests.kube.layout import NAMESPACE
from tests.kube.processes import run

NAME = "orders"
FULL_NAME = "orders-shale"
STORE_SECRET, TOKEN_SECRET = "orders-store", "orders-tokens"
ROLES = {"reader": 2, "worker": 2, "compactor": 1, "gc": 1, "writer": 1}
"""Replicas of every role, in the order of an upgrade (docs/how-to/kubernetes.md)."""
WAIT_S = 600.0


def selector(role: str) -> str:
    """Return the selector of the pods of a role."""
    return f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component={role}"


def values() -> dict[str, Any]:
    """Return the values of the release: every role, small, with secrets."""
    resources = {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}}
    return {
        "image": {"repository": "shale", "tag": "current"},
        "database": {"url": store.DATABASE, "alias": "orders"},
        "objectStore": {"endpoint": store.ENDPOINT, "region": store.REGION, "existingSecret": STORE_SECRET},
        "auth": {"existingSecret": TOKEN_SECRET, "secretKey": "", "roleKeys": {"write": "services"}},
        # Small L0s, so that the few rows of the check are flushed and compacted all the time.
        "settings": {"reader": {"manifest_poll_interval": "1s"}, "writer": {"l0_sst_size_bytes": "64KiB"}},
        "writer": {**resources, "terminationGracePeriodSeconds": 40},
        "compactor": {**resources, "embeddedWorker": False, "terminationGracePeriodSeconds": 40},
        "worker": {**resources, "replicas": ROLES["worker"], "terminationGracePeriodSeconds": 40},
        "gc": {**resources, "terminationGracePeriodSeconds": 40},
        "reader": {**resources, "enabled": True, "replicas": ROLES["reader"], "terminationGracePeriodSeconds": 40},
    }


def stage(done: int, previous: str, current: str) -> dict[str, Any]:
    """Return the values of an upgrade in which the first ``done`` roles have the image ``current``."""
    made = values()
    made["image"]["tag"] = previous
    for role in list(ROLES)[:done]:
        made[role]["image"] = {"tag": current}
    return made


def namespace() -> Mapping[str, Any]:
    """Return the namespace of the release; it admits restricted pods only."""
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def secret(name: str, **data: str) -> Mapping[str, Any]:
    """Return a secret; dashes of its keys are written as underscores here."""
    keys = {key.replace("_", "-"): value for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": keys}


def store_secret(key: store.Key) -> Mapping[str, Any]:
    """Return the secret with the key of the store."""
    return secret(STORE_SECRET, access_key_id=key.id, secret_access_key=key.secret)


class Release:
    """Commands of Helm for one release."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def upgrade(self, chart: Path, chosen: Mapping[str, Any]) -> None:
        """Install the release or change it; return when everything is ready."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(dict(chosen), file)
            file.flush()
            self._helm("upgrade", "--install", NAME, str(chart), "-f", file.name, "--wait", f"--timeout={WAIT_S:.0f}s")

    def restart(self, chart: Path, checksum: str) -> None:
        """Change nothing but ``secretsChecksum``, so that all pods restart; return when everything is ready."""
        chosen = ["--reset-then-reuse-values", "--set-string", f"secretsChecksum={checksum}"]
        self._helm("upgrade", NAME, str(chart), *chosen, "--wait", f"--timeout={WAIT_S:.0f}s")

    def test(self) -> str:
        """Run the tests of the chart."""
        return self._helm("test", NAME, f"--timeout={WAIT_S:.0f}s")

    def uninstall(self) -> None:
        """Remove the release; return when its pods have ended."""
        self._helm("uninstall", NAME, f"--timeout={WAIT_S:.0f}s")
        self._cluster.kubectl(
            "wait", "pods", "-l", f"app.kubernetes.io/instance={NAME}", "--for=delete", "--timeout=300s"
        )

    def revision(self) -> int:
        """Return the number of the newest revision."""
        return int(json.loads(self._helm("list", "-o", "json"))[0]["revision"])

    def _helm(self, *arguments: str) -> str:
        command = [self._cluster.helm, f"--namespace={NAMESPACE}", *arguments]
        return run(command, env=self._cluster.helm_env, timeout_s=WAIT_S + 60)
