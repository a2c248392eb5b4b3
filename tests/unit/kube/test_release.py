"""Tests of the values of a release and of files of a node."""

from pathlib import Path

from tests.kube import metrics, node_files, release
from tests.kube.credentials import token_line
from tests.kube.exit_codes import rival
from tests.kube.layout import Layout
from tests.kube.node import remove_cgroups


def test_a_stage_gives_the_new_image_to_the_first_roles_only() -> None:
    made = release.stage(2, "previous", "current")
    images = {role: made[role].get("image", made["image"])["tag"] for role in release.ROLES}
    assert images == {
        "reader": "current",
        "worker": "current",
        "compactor": "previous",
        "gc": "previous",
        "writer": "previous",
    }


def test_nodes_share_no_address_and_no_folder() -> None:
    nodes = Layout(Path("/cache"), Path("/state"), 3).all_nodes()
    for attribute in ("name", "address", "pods", "cgroup", "link", "folder"):
        assert len({getattr(node, attribute) for node in nodes}) == 3


def test_files_of_a_node_stay_in_its_folder(tmp_path: Path) -> None:
    node = Layout(tmp_path, tmp_path, 1).node(1)
    node_files.write(node)
    assert f'root = "{node.folder}/containerd"' in (node.folder / "containerd.toml").read_text()
    assert (node.folder / "kernel" / "vm-overcommit_memory").read_text() == "1"


def test_a_group_with_a_comma_needs_quotes() -> None:
    assert (
        token_line("t", "system:node:node1", "system:nodes") == 't,system:node:node1,system:node:node1,"system:nodes"'
    )


def test_cgroups_are_removed_children_first(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "shale-kube-1" / "kubepods" / "pod").mkdir(parents=True)
    (tmp_path / "cpu" / "docker").mkdir()
    remove_cgroups("shale-kube", tmp_path)
    assert [path.name for path in (tmp_path / "cpu").iterdir()] == ["docker"]


def test_a_rival_is_the_same_pod_on_any_node_and_never_starts_again() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"nodeName": "node1", "restartPolicy": "Always", "containers": [1]}}
    assert rival(pod)["spec"] == {"restartPolicy": "Never", "containers": [1]}


def test_prometheus_asks_kube_state_metrics_only_if_it_runs() -> None:
    for runs in (True, False):
        jobs = metrics.configuration([], state_metrics=runs)["scrape_configs"]
        assert ("kube-state-metrics" in {job["job_name"] for job in jobs}) is runs


def test_prometheus_asks_the_admin_port_of_a_pod() -> None:
    ports = [{"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 9464}]
    containers = [{"name": "writer", "ports": ports}, {"name": "other"}]
    pod = {"metadata": {"name": "a"}, "spec": {"containers": containers}, "status": {"podIP": "10.98.1.2"}}
    labels = {"namespace": "shale-check", "pod": "a", "container": "writer"}
    assert metrics.targets([pod]) == [{"targets": ["10.98.1.2:9464"], "labels": labels}]
