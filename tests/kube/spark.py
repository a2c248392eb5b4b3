"""A compaction on Spark: the driver and its executors are pods of the namespace (docs/how-to/spark.md, section 8)."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kube import release, store
from tests.kube.cluster import Cluster, Json, summary
from tests.kube.errors import KubeCheckError
from tests.kube.processes import wait_for
from tests.kube.scenarios import BACK_S, Stage

IMAGE = "shale-spark:current"
NAME = "shale-spark"
TEMPLATE_FOLDER, TEMPLATE = "/etc/shale/spark", "executor.yaml"
USER = 10001
EXECUTORS = 2
EXECUTOR = "spark-role=executor"
COMPACTED_S, QUIET_S, WRITTEN_S = 600.0, 120.0, 300.0
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY = {
    "runAsUser": USER,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
TEMPORARY = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}


def compact(stage: Stage, archive: Path) -> None:
    """Compact all L0s and runs on Spark, while no client writes; all rows must be the same afterwards."""
    cluster = stage.cluster
    for node in stage.nodes:
        node.wait_import(archive)
    wait_for("an L0 or a run", WRITTEN_S, lambda: sources(manifest(cluster)))
    stage.workload.stop()
    rows = stage.workload.rows()
    wait_for("the end of all other compactions", QUIET_S, lambda: _is_quiet(cluster))
    scale_workers(stage, 0)
    names = sources(manifest(cluster))
    start = time.monotonic()
    cluster.apply(*account(), template(), driver(names))
    ran = wait_for("executors", COMPACTED_S, lambda: _executors(cluster))[0]
    phase = wait_for("the end of the driver", COMPACTED_S, lambda: _ended(cluster))[0]
    took_s = time.monotonic() - start
    output = cluster.kubectl("logs", NAME)
    if phase != "Succeeded":
        raise KubeCheckError(f"the driver of Spark ended as {phase}:\n{output}")
    stage.report.add("compaction on Spark, with the start of its pods", took_s)
    tasks = require_tasks(cluster)
    require_compacted(names, manifest(cluster))
    if stage.workload.rows() != rows:
        raise KubeCheckError("the compaction on Spark changed rows")
    text = f"{len(names)} sources, {tasks} tasks in {len(ran)} executors, {len(rows)} rows, all the same"
    stage.report.fact("compaction on Spark", text)
    remove(cluster)
    scale_workers(stage, release.ROLES["worker"])
    stage.workload.start()
    stage.workload.wait_acknowledged(time.monotonic())


def driver(names: Sequence[str]) -> Json:
    """Return the pod of the driver, which compacts these sources."""
    properties = {
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
        "spark.kubernetes.driver.pod.name": NAME,
        "spark.kubernetes.executor.podTemplateFile": f"{TEMPLATE_FOLDER}/{TEMPLATE}",
        "spark.kubernetes.executor.request.cores": "50m",
        "spark.kubernetes.executor.deleteOnTermination": "false",
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.port": "7078",
        "spark.blockManager.port": "7079",
        "spark.executor.instances": str(EXECUTORS),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "512m",
        **{
            f"spark.kubernetes.executor.secretKeyRef.{variable}": f"{release.STORE_SECRET}:{key}"
            for variable, key in KEYS
        },
    }
    command = ["spark", "compact", "-u", store.DATABASE, "-o", "json", "--sources", ",".join(names)]
    command += ["--master", "k8s://https://kubernetes.default.svc", "--ranges", str(EXECUTORS)]
    container = {
        "name": "driver",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": [*command, *(word for each in properties.items() for word in ("--conf", "=".join(each)))],
        "env": environment(),
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [*TEMPORARY["volumeMounts"], {"name": "template", "mountPath": TEMPLATE_FOLDER}],
    }
    spec = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "template", "configMap": {"name": NAME}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}


KEYS = (("AWS_ACCESS_KEY_ID", "access-key-id"), ("AWS_SECRET_ACCESS_KEY", "secret-access-key"))
"""Variables of the store's key, and the keys of the secret."""


def environment() -> list[Json]:
    """Return the variables of the driver: its own address, and the store."""
    fields = {"POD_IP": "status.podIP", "POD_NAMESPACE": "metadata.namespace"}
    secret = {"name": release.STORE_SECRET}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "valueFrom": {"secretKeyRef": {**secret, "key": key}}} for name, key in KEYS),
        {"name": "SHALE_STORE__ENDPOINT", "value": store.ENDPOINT},
        {"name": "SHALE_STORE__REGION", "value": store.REGION},
    ]


def template() -> Json:
    """Return the template of executors, as the page of Spark shows it."""
    container = {"name": "spark-kubernetes-executor", "securityContext": RESTRICTED, **TEMPORARY}
    spec = {
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": spec})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {TEMPLATE: text}}


def account() -> list[Json]:
    """Return the service account of the driver, and what it may do."""
    api = "rbac.authorization.k8s.io/v1"
    verbs = ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"]
    rule = {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": verbs,
    }
    named = {"metadata": {"name": NAME}}
    subjects = [{"kind": "ServiceAccount", "name": NAME}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": api, "kind": "Role", **named, "rules": [rule]},
        {"apiVersion": api, "kind": "RoleBinding", **named, "subjects": subjects, "roleRef": role},
    ]


def sources(content: Mapping[str, Any]) -> list[str]:
    """Return the names of all L0s and runs of the root tree, as ``--sources`` takes them.

    Raises:
        KubeCheckError: there are none, so a compaction would have nothing to do.
    """
    tree = content["manifest"]["tree"]
    names = [each["id"] for each in tree["l0"]] + [f"SR{each['id']}" for each in tree["compacted"]]
    if not names:
        raise KubeCheckError("the database has no L0 and no run that Spark could compact")
    return names


def require_compacted(names: Sequence[str], content: Mapping[str, Any]) -> None:
    """Require that one run is left of these sources.

    Raises:
        KubeCheckError: something else is there.
    """
    left = sources(content)
    if len(left) != 1 or not left[0].startswith("SR"):
        raise KubeCheckError(f"Spark compacted {', '.join(names)}, and {', '.join(left)} is left instead of one run")


def require_tasks(cluster: Cluster) -> int:
    """Return how many tasks the executors say that they ran.

    Raises:
        KubeCheckError: none.
    """
    pods = cluster.get("pods", "-l", EXECUTOR)
    logs = [cluster.kubectl("logs", pod["metadata"]["name"]) for pod in pods]
    if not (count := sum(log.count("Running task ") for log in logs)):
        raise KubeCheckError(f"no executor ran a task: {'; '.join(map(summary, pods))}")
    return count


def manifest(cluster: Cluster) -> Mapping[str, Any]:
    """Return the newest manifest."""
    command = ["shale", "manifest", "show", "-u", store.DATABASE, "-o", "json"]
    return _json(cluster.kubectl("exec", f"deployment/{release.FULL_NAME}-compactor", "--", *command))


def remove(cluster: Cluster) -> None:
    """Remove the driver, whose executors end with it, and its rights."""
    cluster.kubectl("delete", f"pod/{NAME}", f"configmap/{NAME}", f"serviceaccount/{NAME}")
    cluster.kubectl("delete", f"role/{NAME}", f"rolebinding/{NAME}")
    wait_for("the end of all executors", BACK_S, lambda: not cluster.get("pods", "-l", EXECUTOR) or None)


def scale_workers(stage: Stage, replicas: int) -> None:
    """Change how many workers the release has."""
    stage.cluster.kubectl("scale", f"deployment/{release.FULL_NAME}-worker", f"--replicas={replicas}")
    selector = release.selector("worker")
    wait_for(f"{replicas} workers", BACK_S, lambda: len(stage.cluster.get("pods", "-l", selector)) == replicas or None)
    stage.cluster.wait_ready(selector, replicas, BACK_S)


def _is_quiet(cluster: Cluster) -> bool | None:
    command = ["shale", "compaction", "list", "-u", store.DATABASE, "-o", "json"]
    listed = _json(cluster.kubectl("exec", f"deployment/{release.FULL_NAME}-compactor", "--", *command))
    active = [each["id"] for each in listed["compactions"] if each["phase"] not in ("completed", "failed")]
    if active:
        raise KubeCheckError(f"{active} are active")
    return True


def _executors(cluster: Cluster) -> list[str] | None:
    # The names of executors that run or have run.
    ended = _ended(cluster)
    pods = cluster.get("pods", "-l", EXECUTOR)
    found = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") in ("Running", "Succeeded")]
    if len(found) < EXECUTORS and not ended:
        raise KubeCheckError("; ".join(map(summary, pods)) or "no executors")
    return found


def _ended(cluster: Cluster) -> str | None:
    (pod,) = (pod for pod in cluster.get("pods") if pod["metadata"]["name"] == NAME)
    phase = pod["status"].get("phase")
    if phase not in ("Succeeded", "Failed"):
        raise KubeCheckError(f"{summary(pod)}: {cluster.kubectl('logs', NAME, '--tail=3')}")
    return str(phase)


def _json(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text)
    return found
