"""The check itself, in namespaces of its own: ``__main__`` starts this module there."""

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.kube import control_plane, exit_codes, images, metrics, network, release, scenarios, spark, store_key
from tests.kube.build import STATE_METRICS, cache
from tests.kube.cluster import Cluster
from tests.kube.errors import KubeCheckError
from tests.kube.layout import Layout
from tests.kube.load.workload import Workload
from tests.kube.node import Node
from tests.kube.processes import Processes, say
from tests.kube.release import Release
from tests.kube.report import Report
from tests.kube.scenarios import Stage
from tests.kube.store import Key, Store
from tests.paths import REPOSITORY

SERVICE_PORT = 8080
CHART = REPOSITORY / "helm" / "shale"
SPARK = "spark"
PARTS = ("upgrade", "rotation", "store-rotation", "drain", "rival", STATE_METRICS, "kills", SPARK)
"""What may be left out, in the order in which it runs."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the release has at first, and what replaces it: tokens of clients, and keys of the store."""

    tokens: tuple[str, str]
    keys: tuple[Key, Key]


def start_cluster(
    layout: Layout, processes: Processes, report: Report, store: Store, key: Key
) -> tuple[Cluster, list[Node]]:
    """Start the store with a key, the control plane and all nodes."""
    begin = time.monotonic()
    network.create_bridge()
    store.start(processes)
    store.add(key)
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


def install(cluster: Cluster, report: Report, chart: Path, token: str, key: Key) -> Release:
    """Install the chart of the previous commit, with its image, in a restricted namespace."""
    cluster.apply(release.namespace())
    cluster.apply(
        release.store_secret(key),
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


def fence(stage: Stage, layout: Layout, processes: Processes, *, state_metrics: bool) -> None:
    """Start monitoring, and fence the writer."""
    metrics.start(layout, processes, stage.cluster.pods(), state_metrics=state_metrics)
    exit_codes.check(stage, state_metrics=state_metrics)


def disturb(
    stage: Stage,
    layout: Layout,
    processes: Processes,
    store: Store,
    chosen: Secrets,
    rounds: int,
    left_out: Set[str],
) -> None:
    """Run all scenarios except those that are left out."""
    state_metrics = STATE_METRICS not in left_out
    parts: Mapping[str, Callable[[], None]] = {
        "upgrade": partial(scenarios.upgrade, stage, CHART),
        "rotation": partial(scenarios.rotate, stage, *chosen.tokens),
        "store-rotation": partial(store_key.rotate, stage, store, CHART, *chosen.keys),
        "drain": partial(scenarios.drain, stage),
        "rival": partial(fence, stage, layout, processes, state_metrics=state_metrics),
        "kills": partial(scenarios.kill_pods, stage, rounds),
        SPARK: partial(spark.compact, stage, images.archive_of(layout, images.SPARK)),
    }
    for name, part in parts.items():
        if name not in left_out:
            part()
            stage.release.test()


def check(layout: Layout, processes: Processes, report: Report, rounds: int, left_out: Set[str]) -> None:
    """Run everything except the parts ``left_out``, which the report names."""
    if left_out:
        report.fact("left out", ", ".join(sorted(left_out)))
    found = images.read_list(layout.image_list)
    for image in found.values():
        report.fact(f"image {image.name}", f"commit {image.revision}, {image.id}")
    chosen = Secrets((secrets.token_hex(16), secrets.token_hex(16)), (Key("shale-old"), Key("shale-new")))
    store = Store(layout)
    cluster, nodes = start_cluster(layout, processes, report, store, chosen.keys[0])
    try:
        chart = layout.state / "previous" / "helm" / "shale"
        installed = install(cluster, report, chart, chosen.tokens[0], chosen.keys[0])
        service = cluster.kubectl(
            "get", "service", f"{release.FULL_NAME}-writer", "-o", "jsonpath={.spec.clusterIP}"
        ).strip()
        workload = Workload(layout, nodes[0], processes, service, SERVICE_PORT)
        workload.use_token(chosen.tokens[0])
        workload.start()
        stage = Stage(cluster, nodes, installed, workload, report, found)
        workload.wait_acknowledged(0.0)
        if SPARK not in left_out:
            for node in nodes:
                node.start_import(images.archive_of(layout, images.SPARK))
        disturb(stage, layout, processes, store, chosen, rounds, left_out)
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
    parser.add_argument("--leave-out", nargs="*", choices=PARTS, default=[])
    arguments = parser.parse_args()
    layout = Layout(cache(), arguments.state, arguments.nodes)
    processes, report = Processes(layout.logs), Report()
    try:
        check(layout, processes, report, arguments.rounds, set(arguments.leave_out))
    except KubeCheckError as error:
        sys.stderr.write(f"the check on Kubernetes failed: {error}\n")
        return 1
    finally:
        report.save(arguments.state.parent / "report.json")
        say("measured:\n" + "\n".join(report.lines()))
        processes.stop_all()
    say("everything held" + "".join(f"; {part} was left out" for part in arguments.leave_out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
