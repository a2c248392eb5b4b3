"""Configuration files of the processes of a node."""

import json
from collections.abc import Mapping
from typing import Any

from tests.kube.layout import CONTROL_PLANE, DOMAIN, NodeLayout

PAUSE_IMAGE = "docker.io/library/shale-pause:local"
NETWORK_PLUGINS = "/usr/lib/cni"
KERNEL_SETTINGS: Mapping[str, str] = dict(
    setting.split("=")
    for setting in [
        "vm/overcommit_memory=1",
        "vm/panic_on_oom=0",
        "kernel/panic=10",
        "kernel/panic_on_oops=1",
        "kernel/keys/root_maxkeys=1000000",
        "kernel/keys/root_maxbytes=25000000",
    ]
)
"""What a kubelet wants to set.  These hold for the whole machine, so the node sees files with these values instead."""


def kubelet(node: NodeLayout) -> Mapping[str, Any]:
    """Return the configuration of the kubelet.

    Its port has no authentication: only the namespaces of the check reach it.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "clusterDNS": [CONTROL_PLANE],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failSwapOn": False,
        "failCgroupV1": False,
        "imageGCHighThresholdPercent": 100,
        "maxPods": 40,
        "oomScoreAdj": 0,
        "resolvConf": str(node.folder / "resolv.conf"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
    }


def network(node: NodeLayout) -> Mapping[str, Any]:
    """Return the configuration of the network plugins: a bridge, and addresses of the node's range."""
    return {
        "cniVersion": "0.4.0",
        "name": "shale",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
            },
            {"type": "loopback"},
        ],
    }


def containerd(node: NodeLayout) -> str:
    """Return the configuration of containerd.

    It lowers no score of the OOM killer, because that needs CAP_SYS_RESOURCE, which some machines withhold.
    """
    runtime = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{node.folder}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[{runtime}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
[{runtime}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false
[{runtime}.cni]
bin_dir = "{NETWORK_PLUGINS}"
conf_dir = "{node.folder}/cni"
"""


def write(node: NodeLayout) -> None:
    """Write all files of a node."""
    for name in ("lib", "log", "run", "cni", "kernel", "volume-plugins"):
        (node.folder / name).mkdir(parents=True)
    (node.folder / "resolv.conf").write_text("")
    (node.folder / "kubelet.json").write_text(json.dumps(kubelet(node)))
    (node.folder / "containerd.toml").write_text(containerd(node))
    (node.folder / "cni" / "10-shale.conflist").write_text(json.dumps(network(node)))
    for setting, value in KERNEL_SETTINGS.items():
        (node.folder / "kernel" / setting.replace("/", "-")).write_text(value)
