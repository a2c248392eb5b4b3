"""What happens to the release, and what must hold after each: kills, a drained node, an upgrade, rotated secrets."""

import os
import signal
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.kube import release
from tests.kube.cluster import Cluster, Json, container_id, is_ready, summary
from tests.kube.errors import KubeCheckError
from tests.kube.images import REVISION, Image
from tests.kube.load.history import longest_gap
from tests.kube.load.workload import Workload
from tests.kube.node import Node
from tests.kube.processes import say, wait_for
from tests.kube.release import Release
from tests.kube.report import Report

BACK_S = 180.0
ROTATED_S = 240.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a scenario acts on."""

    cluster: Cluster
    nodes: Sequence[Node]
    release: Release
    workload: Workload
    report: Report
    images: Mapping[str, Image]
    """By the tag that pods name."""


def wait_roles(stage: Stage) -> None:
    """Wait until every role has its pods."""
    for role, replicas in release.ROLES.items():
        stage.cluster.wait_ready(release.selector(role), replicas, BACK_S)


def kill_pods(stage: Stage, rounds: int) -> None:
    """Kill the writer's pod ``rounds`` times under load, in turns by the API and by a signal to its process.

    Other roles are killed in between.  No acknowledged write may be missing afterwards.
    """
    others = [role for role in release.ROLES if role != "writer"]
    for number in range(rounds):
        pod = one_pod(stage, "writer")
        killed = time.monotonic()
        if number % 2:
            kill_process(stage, pod)
        else:
            delete_pod(stage, pod)
        if number % 5 == 4:
            delete_pod(stage, one_pod(stage, others[number // 5 % len(others)]))
        wait_for("another writer", BACK_S, partial(another, stage, pod), pause_s=0.2)
        first = stage.workload.wait_acknowledged(time.monotonic(), 4)
        way = "SIGKILL" if number % 2 else "delete --force"
        gap = longest_gap(stage.workload.writes(), killed, first)
        stage.report.add(f"no write acknowledged after {way} of the writer", gap)
    wait_roles(stage)
    stage.report.fact(f"{rounds} kills", f"{stage.workload.check()} acknowledged writes, none lost")


def another(stage: Stage, old: Json) -> bool | None:
    """Return whether a ready writer runs that is not the process that was killed."""
    for pod in stage.cluster.pods(release.selector("writer")):
        if is_ready(pod) and container_id(pod) != container_id(old):
            return True
    return None


def one_pod(stage: Stage, role: str) -> Json:
    """Return a ready pod of a role."""

    def look() -> Json | None:
        pods = stage.cluster.pods(release.selector(role))
        return next((pod for pod in pods if is_ready(pod)), None)

    return wait_for(f"a pod of {role}", BACK_S, look)[0]


def delete_pod(stage: Stage, pod: Json) -> None:
    """Delete a pod without letting it end."""
    stage.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")


def kill_process(stage: Stage, pod: Json) -> None:
    """Kill the first process of a pod; the kubelet starts it again."""
    node = next(node for node in stage.nodes if node.name == pod["spec"]["nodeName"])
    os.kill(node.process_id(container_id(pod)), signal.SIGKILL)


def drain(stage: Stage) -> None:
    """Drain the node of the writer; everything moves to other nodes, disruption budgets hold."""
    name = one_pod(stage, "writer")["spec"]["nodeName"]
    start = time.monotonic()
    stage.cluster.kubectl("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    stage.report.add("drain of the writer's node", time.monotonic() - start)
    wait_roles(stage)
    left = [summary(pod) for pod in stage.cluster.pods() if pod["spec"].get("nodeName") == name]
    if left:
        raise KubeCheckError(f"{name} is drained but has {left}")
    first = stage.workload.wait_acknowledged(time.monotonic())
    stage.report.add("no write acknowledged in a drain", longest_gap(stage.workload.writes(), start, first))
    stage.cluster.kubectl("uncordon", name)
    stage.report.fact("drain", f"{stage.workload.check()} acknowledged writes, none lost")


def upgrade(stage: Stage, chart: Path) -> None:
    """Upgrade from the previous commit: first the chart, then the image role by role (docs/how-to/kubernetes.md).

    A step changes the pods of its role only, and the last one, which gives all roles the image, changes none.
    """
    require_image(stage, "shale:previous")
    _step(stage, chart, "the chart", release.stage(0, "previous", "current"), set(release.ROLES))
    for done, role in enumerate(release.ROLES, start=1):
        _step(stage, chart, role, release.stage(done, "previous", "current"), {role})
    _step(stage, chart, "no role", release.values(), set())
    require_image(stage, "shale:current")
    stage.report.fact("upgrade", f"{stage.workload.check()} acknowledged writes, none lost")


def _step(stage: Stage, chart: Path, name: str, chosen: Mapping[str, Any], may_change: Set[str]) -> None:
    before = running(stage)
    start = time.monotonic()
    stage.release.upgrade(chart, chosen)
    wait_roles(stage)
    stage.report.add(f"upgrade of {name}", time.monotonic() - start)
    report_gap(stage, f"no write acknowledged in the upgrade of {name}", start)
    after = running(stage)
    if changed := {role for role in after if after[role] != before[role]} - may_change:
        raise KubeCheckError(f"the upgrade of {name} restarted {sorted(changed)}")


def report_gap(stage: Stage, name: str, start: float) -> None:
    """Wait for a write that is acknowledged, and report the longest time without one since ``start``."""
    first = stage.workload.wait_acknowledged(time.monotonic())
    stage.report.add(name, longest_gap(stage.workload.writes(), start, first))


def require_image(stage: Stage, image: str) -> None:
    """Require that all roles have an image, and run the commit that it was built of."""
    expected = stage.images[image].revision
    for role in release.ROLES:
        for pod in stage.cluster.pods(release.selector(role)):
            name, found = pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]
            revision = stage.cluster.kubectl("exec", name, "--", "printenv", REVISION).strip()
            if (found, revision) != (image, expected):
                raise KubeCheckError(f"{name} runs {found} of {revision}; {image} of {expected} was expected")


def running(stage: Stage) -> dict[str, set[str]]:
    """Return the containers that run, by role."""
    return {role: set(map(container_id, stage.cluster.pods(release.selector(role)))) for role in release.ROLES}


def rotate(stage: Stage, old: str, new: str) -> None:
    """Rotate the token of clients as docs/how-to/tokens.md says, without a restart."""
    before = running(stage)
    start = time.monotonic()
    _use_tokens(stage, f"{old} {new}")
    stage.workload.use_token(new)
    stage.workload.wait_acknowledged(time.monotonic())
    _use_tokens(stage, new)
    stage.report.add("rotation of a token, both steps", time.monotonic() - start)
    wait_for("refusal of the old token", BACK_S, lambda: stage.workload.is_refused(old))
    if before != running(stage):
        raise KubeCheckError("the rotation restarted pods")
    stage.report.fact("rotation", f"{stage.workload.check()} acknowledged writes, none lost; no restart")


def _use_tokens(stage: Stage, tokens: str) -> None:
    stage.cluster.apply(release.secret(release.TOKEN_SECRET, services=tokens))
    for role in ("writer", "reader"):
        for pod in stage.cluster.pods(release.selector(role)):
            name = pod["metadata"]["name"]
            wait_for(f"the secret in {name}", ROTATED_S, partial(_sees_tokens, stage, name, tokens))
            stage.cluster.kubectl("exec", name, "--", "sh", "-c", "kill -HUP 1")
    say(f"{len(tokens.split())} tokens are in force")


def _sees_tokens(stage: Stage, pod: str, tokens: str) -> bool | None:
    program = "cat /etc/shale/secrets/tokens__write"
    return stage.cluster.kubectl("exec", pod, "--", "sh", "-c", program) == tokens or None
