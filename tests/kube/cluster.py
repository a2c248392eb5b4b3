"""The cluster as an administrator sees it: kubectl and what its answers mean."""

import json
from collections.abc import Mapping
from typing import Any

from tests.kube.errors import KubeCheckError
from tests.kube.layout import NAMESPACE, Layout
from tests.kube.processes import run, wait_for

Json = Mapping[str, Any]


class Cluster:
    """Commands of ``kubectl`` with the rights of an administrator."""

    def __init__(self, layout: Layout) -> None:
        self._kubectl = [str(layout.cache / "kubectl"), f"--kubeconfig={layout.kubeconfig('admin')}"]
        self.helm_env = {
            "KUBECONFIG": str(layout.kubeconfig("admin")),
            "HELM_CACHE_HOME": str(layout.state / "helm"),
            "HELM_CONFIG_HOME": str(layout.state / "helm"),
            "HELM_DATA_HOME": str(layout.state / "helm"),
        }
        self.helm = str(layout.cache / "helm")

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
        """Run a command in the namespace of the check and return what it prints."""
        command = [*self._kubectl, f"--namespace={NAMESPACE}", *arguments]
        return run(command, stdin=stdin, timeout_s=timeout_s)

    def apply(self, *objects: Json) -> None:
        """Create or change objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-f", "-", stdin=text)

    def get(self, kind: str, *arguments: str) -> list[Json]:
        """Return objects of a kind."""
        items: list[Json] = json.loads(self.kubectl("get", kind, *arguments, "-o", "json"))["items"]
        return items

    def pods(self, selector: str = "") -> list[Json]:
        """Return pods that are not being deleted, by a selector of labels."""
        found = self.get("pods", *(["-l", selector] if selector else []))
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_ready(self, selector: str, count: int, limit_s: float) -> float:
        """Wait until exactly ``count`` pods exist and are ready; return the seconds it took."""

        def look() -> bool | None:
            pods = self.pods(selector)
            if len(pods) == count and all(is_ready(pod) for pod in pods):
                return True
            raise KubeCheckError("; ".join(map(summary, pods)) or "no pods")

        return wait_for(f"{count} ready pods of {selector}", limit_s, look)[1]

    def diagnosis(self) -> str:
        """Return what helps to understand a failure: pods, warnings, and the ends of the logs."""
        texts = [self.kubectl("get", "nodes,pods", "-A", "-o", "wide")]
        texts.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp", "--field-selector=type=Warning"))
        for pod in self.get("pods"):
            name = pod["metadata"]["name"]
            try:
                texts.append(f"--- {name}\n" + self.kubectl("logs", name, "--tail=12"))
            except KubeCheckError as error:
                texts.append(f"--- {name}: {error}")
        return "\n".join(texts)


def is_ready(pod: Json) -> bool:
    """Return whether a pod is ready."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def summary(pod: Json) -> str:
    """Return name, phase and the reason why containers wait or ended."""
    states = []
    for status in pod["status"].get("containerStatuses", []):
        for state, details in status.get("state", {}).items():
            states.append(f"{state} {details.get('reason', '')} {details.get('exitCode', '')}".strip())
    return f"{pod['metadata']['name']}: {pod['status'].get('phase')} {', '.join(states)}"


def container_id(pod: Json) -> str:
    """Return the id of the first container, as the container runtime knows it."""
    identifier: str = pod["status"]["containerStatuses"][0]["containerID"]
    return identifier.split("://", 1)[1]
