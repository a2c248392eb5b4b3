"""The check itself, in namespaces of its own: ``__main__`` starts this module there."""

import argparse
import secrets
import sys
import time
from pathlib import Path

from tests.kube import control_plane, exit_codes, metrics, network, release, scenarios, store
from tests.kube.build import cache
from tests.kube.cluster import Cluster
from tests.kube.errors import KubeCheckError
from tests.kube.layout import Layout
from tests.kube.load.workload import Workload
from tests.kube.node import Node
from tests.kube.processes import Processes, say
from tests.kube.release import Release
from tests.kube.report import Report
from tests.kube.scenarios import Stage
from tests.paths import REPOSITORY

SERVICE_PORT = 8080
CHART = REPOSITORY / "helm" / "shale"


def start_cluster(layout: Layout, processes: Processes, report: Report) -> tuple[Cluster, list[Node]]:
    """Start the store, the control plane and all nodes."""
    begin = time.monotonic()
    network.create_bridge()
    store.start(layout, processes)
    nodes = [Node(layout, node, processes) for node in layout.all_nodes()]
    for node in nodes:
        node.prepare()
    report.add(f"images on {len(nodes)} nodes", time.monotonic() - begin)
    begin = time.monotonic()
    cluster = control_plane.start(layout, processes)
    report.add("control plane ready", time.monotonic() - begin)
    for node in nodes:
        node.join()
    for node in nodes:
        node.wait_ready(cluster)
    report.add(f"{len(nodes)} nodes ready", time.monotonic() - begin)
    return cluster, nodes


def install(cluster: Cluster, report: Report, chart: Path, token: str) -> Release:
    """Install the chart of the previous commit, with its image, in a restricted namespace."""
    cluster.apply(release.namespace())
    cluster.apply(
        release.secret(release.STORE_SECRET, access_key_id=store.ACCESS_KEY, secret_access_key=store.SECRET_KEY),
        release.secret(release.TOKEN_SECRET, services=token),
    )
    installed = Release(cluster)
    start = time.monotonic()
    installed.upgrade(chart, release.stage(0, "previous", "current"))
    report.add("install of the previous chart", time.monotonic() - start)
    start = time.monotonic()
    installed.test()
    report.add("helm test", time.monotonic() - start)
    return installed


def check(layout: Layout, processes: Processes, report: Report, rounds: int, *, state_metrics: bool) -> None:
    """Run everything; kube-state-metrics only if asked for."""
    cluster, nodes = start_cluster(layout, processes, report)
    old, new = secrets.token_hex(16), secrets.token_hex(16)
    try:
        installed = install(cluster, report, layout.state / "previous" / "helm" / "shale", old)
        metrics.start(layout, processes, state_metrics=state_metrics)
        service = cluster.kubectl(
            "get", "service", f"{release.FULL_NAME}-writer", "-o", "jsonpath={.spec.clusterIP}"
        ).strip()
        workload = Workload(layout, nodes[0], processes, service, SERVICE_PORT)
        workload.use_token(old)
        workload.start()
        stage = Stage(cluster, nodes, installed, workload, report)
        workload.wait_acknowledged(0.0)
        scenarios.upgrade(stage, CHART)
        installed.test()
        scenarios.rotate(stage, old, new)
        scenarios.drain(stage)
        exit_codes.check(stage, state_metrics=state_metrics)
        scenarios.kill_pods(stage, rounds)
        workload.stop()
        start = time.monotonic()
        installed.uninstall()
        left = cluster.kubectl(
            "get", "all,configmaps,serviceaccounts", "-l", "app.kubernetes.io/name=shale", "-o", "name"
        )
        if left.strip():
            raise KubeCheckError(f"the release is uninstalled but left {left}")
        report.add("uninstall", time.monotonic() - start)
    except KubeCheckError:
        sys.stderr.write(cluster.diagnosis() + "\n")
        raise


def main() -> int:
    """Run the check; return 0 if everything held."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--without-kube-state-metrics", action="store_true")
    arguments = parser.parse_args()
    layout = Layout(cache(), arguments.state, arguments.nodes)
    processes, report = Processes(layout.logs), Report()
    try:
        state_metrics = not arguments.without_kube_state_metrics
        check(layout, processes, report, arguments.rounds, state_metrics=state_metrics)
    except KubeCheckError as error:
        sys.stderr.write(f"the check on Kubernetes failed: {error}\n")
        return 1
    finally:
        report.save(arguments.state.parent / "report.json")
        say("measured:\n" + "\n".join(report.lines()))
        processes.stop_all()
    say("everything held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
