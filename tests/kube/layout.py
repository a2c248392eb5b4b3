"""Addresses and folders of the cluster.  All addresses exist in its own network namespaces only."""

from dataclasses import dataclass
from pathlib import Path

CONTROL_PLANE = "10.99.0.1"
API_PORT, STORE_PORT, PROMETHEUS_PORT, STATE_METRICS_PORT = 6443, 7070, 9090, 8081
SERVICES = "10.97.0.0/24"
API_SERVICE = "10.97.0.1"
PODS = "10.98.0.0/16"
DOMAIN = "cluster.local"
BRIDGE = "shale0"
NAMESPACE = "shale-check"
CGROUP = "shale-kube"
"""Prefix of the cgroups of the nodes."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """What belongs to one node; ``index`` begins with 1."""

    index: int
    folder: Path

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return f"node{self.index}"

    @property
    def address(self) -> str:
        """Its address on the bridge of the control plane."""
        return f"10.99.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        """The addresses of its pods."""
        return f"10.98.{self.index}.0/24"

    @property
    def cgroup(self) -> str:
        """The parent of the cgroups of its pods."""
        return f"{CGROUP}-{self.index}"

    @property
    def link(self) -> str:
        """The end of its link on the side of the control plane."""
        return f"shale-n{self.index}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders of one run: binaries and images outlive it, ``state`` does not."""

    cache: Path
    state: Path
    nodes: int

    @property
    def images(self) -> Path:
        """Archives of images, as ``ctr images import`` takes them."""
        return self.cache / "images"

    @property
    def image_list(self) -> Path:
        """What Docker says about the images of this run."""
        return self.state / "images.json"

    @property
    def logs(self) -> Path:
        """Logs of all processes."""
        return self.state / "logs"

    @property
    def credentials(self) -> Path:
        """Certificates, tokens and kubeconfigs."""
        return self.state / "credentials"

    def node(self, index: int) -> NodeLayout:
        """Return the layout of a node."""
        return NodeLayout(index, self.state / f"node{index}")

    def all_nodes(self) -> list[NodeLayout]:
        """Return the layouts of all nodes."""
        return [self.node(index) for index in range(1, self.nodes + 1)]

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a user."""
        return self.credentials / f"{user}.kubeconfig"
