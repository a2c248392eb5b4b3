"""A node: its namespaces, containerd, kubelet and kube-proxy."""

from pathlib import Path

from tests.kube import network, node_files
from tests.kube.cluster import Cluster, is_ready
from tests.kube.errors import KubeCheckError
from tests.kube.layout import PODS, Layout, NodeLayout
from tests.kube.processes import Processes, run, wait_for

CGROUPS = Path("/sys/fs/cgroup")
SOCKET_S, READY_S, IMPORT_S = 60.0, 180.0, 600.0


class Node:
    """The processes of one node, in a network and a mount namespace of its own."""

    def __init__(self, layout: Layout, node: NodeLayout, processes: Processes) -> None:
        self.layout = node
        self.name = node.name
        self._cluster_layout = layout
        self._processes = processes
        self._anchor = 0

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs in the namespaces of the node."""
        return ["nsenter", "-t", str(self._anchor), "-n", "-m", "--", *command]

    def prepare(self) -> None:
        """Start containerd with all images, in namespaces of its own."""
        node_files.write(self.layout)
        self._anchor = self._processes.start(f"{self.name}-namespaces", ["unshare", "-n", "-m", "sleep", "infinity"])
        wait_for("namespaces", SOCKET_S, self._has_namespaces, pause_s=0.05)
        network.connect(self.layout, self._anchor)
        self._mount()
        make_cgroup(self.layout.cgroup)
        containerd = ["containerd", "--config", str(self.layout.folder / "containerd.toml")]
        self._processes.start(f"{self.name}-containerd", self.inside(*containerd))
        wait_for("containerd", SOCKET_S, lambda: self.ctr("version"))
        for name in ("shale-pause", "shale-previous", "shale-current"):
            self.ctr("images", "import", str(self._cluster_layout.images / f"{name}.tar"))

    def join(self) -> None:
        """Start the kubelet, by which the node joins the cluster, and what makes Services of it."""
        binaries = self._cluster_layout.cache
        self._processes.start(
            f"{self.name}-kubelet",
            self.inside(
                str(binaries / "kubelet"),
                f"--config={self.layout.folder / 'kubelet.json'}",
                f"--kubeconfig={self._cluster_layout.kubeconfig(self.name)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.layout.address}",
            ),
        )
        self._processes.start(
            f"{self.name}-kube-proxy",
            self.inside(
                str(binaries / "kube-proxy"),
                f"--kubeconfig={self._cluster_layout.kubeconfig('kube-proxy')}",
                f"--hostname-override={self.name}",
                f"--cluster-cidr={PODS}",
                "--proxy-mode=iptables",
                "--oom-score-adj=0",
                # These hold for the whole machine: leave them alone.
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0s",
                "--conntrack-tcp-timeout-close-wait=0s",
            ),
        )

    def wait_ready(self, cluster: Cluster) -> float:
        """Wait until the node takes pods; return the seconds it took."""

        def look() -> bool | None:
            if complaint := self._processes.ended():
                raise KubeCheckError(complaint)
            nodes = {node["metadata"]["name"]: node for node in cluster.get("nodes")}
            return (self.name in nodes and is_ready(nodes[self.name])) or None

        return wait_for(f"{self.name} ready", READY_S, look)[1]

    def ctr(self, *arguments: str) -> str:
        """Run a command of containerd's client."""
        return run(self.inside("ctr", "--namespace=k8s.io", *arguments))

    def start_import(self, archive: Path) -> None:
        """Import an image that is needed later; it is large."""
        command = ["ctr", "--namespace=k8s.io", "images", "import", str(archive)]
        self._processes.start(f"{self.name}-{archive.stem}", self.inside(*command))

    def wait_import(self, archive: Path) -> None:
        """Wait until the image of an archive can be used."""
        self._processes.wait(f"{self.name}-{archive.stem}", IMPORT_S)

    def process_id(self, container: str) -> int:
        """Return the id of the first process of a container.

        Raises:
            KubeCheckError: there is no such container on this node.
        """
        for line in self.ctr("tasks", "list").splitlines()[1:]:
            task, process, *_ = line.split()
            if task == container:
                return int(process)
        raise KubeCheckError(f"{self.name} runs no container {container}")

    def _has_namespaces(self) -> bool | None:
        own, other = Path("/proc/self/ns/net"), Path(f"/proc/{self._anchor}/ns/net")
        return True if own.readlink() != other.readlink() else None

    def _mount(self) -> None:
        folder = self.layout.folder
        binds = {"lib": "/var/lib", "log": "/var/log", "run": "/run"}
        for name, target in binds.items():
            run(self.inside("mount", "--bind", str(folder / name), target))
        for setting in node_files.KERNEL_SETTINGS:
            file = folder / "kernel" / setting.replace("/", "-")
            run(self.inside("mount", "--bind", str(file), f"/proc/sys/{setting}"))


def controllers(root: Path = CGROUPS) -> list[Path]:
    """Return the roots of all hierarchies of cgroups: one per controller with version 1, else the only one."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return [folder for folder in sorted(root.iterdir()) if folder.is_dir()]


def make_cgroup(name: str) -> None:
    """Make the parent of the cgroups of a node."""
    for root in controllers():
        (root / name).mkdir(exist_ok=True)
        if (root / "cgroup.controllers").exists():
            enabled = " ".join(f"+{each}" for each in (root / "cgroup.controllers").read_text().split())
            if enabled:
                (root / "cgroup.subtree_control").write_text(enabled)
        # Version 1: a group without processors and memory nodes takes no process.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if root.name == "cpuset" and not (root / name / file).read_text().strip():
                (root / name / file).write_text((root / file).read_text())


def remove_cgroups(prefix: str, root: Path = CGROUPS) -> None:
    """Remove the cgroups of all nodes, children first; their processes have ended."""
    for hierarchy in controllers(root):
        for top in hierarchy.glob(f"{prefix}*"):
            folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
            for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
                folder.rmdir()
