"""The network of the cluster: a bridge for the control plane and one link per node."""

from pathlib import Path

from tests.kube.layout import BRIDGE, CONTROL_PLANE, NodeLayout
from tests.kube.processes import run

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def create_bridge() -> None:
    """Set up the bridge in the network namespace of the control plane."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{CONTROL_PLANE}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    FORWARDING.write_text("1")


def connect(node: NodeLayout, anchor: int) -> None:
    """Connect the network namespace of the process ``anchor``, and route the addresses of its pods to it."""
    _ip("link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", str(anchor))
    _ip("link", "set", node.link, "master", BRIDGE, "up")
    _ip("route", "add", node.pods, "via", node.address)
    inside = ["nsenter", "-t", str(anchor), "-n", "-m", "--"]
    run([*inside, "ip", "link", "set", "lo", "up"])
    run([*inside, "ip", "address", "add", f"{node.address}/24", "dev", "eth0"])
    run([*inside, "ip", "link", "set", "eth0", "up"])
    run([*inside, "ip", "route", "add", "default", "via", CONTROL_PLANE])
    run([*inside, "sh", "-c", f"echo 1 > {FORWARDING}"])
    # Services are rules of iptables; packets between pods of one node must pass them, too.
    run([*inside, "sh", "-c", "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables"])


def _ip(*arguments: str) -> None:
    run(["ip", *arguments])
