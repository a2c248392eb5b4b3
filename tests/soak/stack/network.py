"""Where processes run: on the loopback address, or each in a network namespace of its own.

Namespaces are connected by a bridge that lives in one of them, so the machine keeps its network as it is.  All
addresses are private, and no packet leaves the bridge.
"""

import fcntl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.integration.store.servers import free_port

PREFIX = "shale-soak-"
SWITCH = f"{PREFIX}switch"
BRIDGE = "soak-bridge"
SUBNET = "10.203.77"
FIRST_PORT = 22000
LOCK = Path("/run/lock/shale-soak")


class Network(Protocol):
    """Addresses of processes, and cuts between them."""

    def address(self, node: str) -> str:
        """Return the address at which a node listens."""
        ...

    def port(self) -> int:
        """Return a port on which nothing listens, and that no other process of the run gets."""
        ...

    def inside(self, node: str, command: Sequence[str]) -> list[str]:
        """Return a command that runs at a node."""
        ...

    def isolate(self, node: str) -> None:
        """Cut a node off from all others."""
        ...

    def join(self, node: str) -> None:
        """End ``isolate``."""
        ...

    def cut(self, node: str, other: str) -> None:
        """Drop all packets from ``other`` to ``node``: requests arrive, and no answer comes back."""
        ...

    def mend(self, node: str, other: str) -> None:
        """End ``cut``."""
        ...

    def close(self) -> None:
        """Remove the network."""
        ...


class Loopback:
    """One address for all; nothing can be cut."""

    def __init__(self) -> None:
        self._used: set[int] = set()

    def address(self, node: str) -> str:
        """See ``Network``."""
        return "127.0.0.1"

    def port(self) -> int:
        """See ``Network``."""
        while (port := free_port()) in self._used:
            pass
        self._used.add(port)
        return port

    def inside(self, node: str, command: Sequence[str]) -> list[str]:
        """See ``Network``."""
        return list(command)

    def isolate(self, node: str) -> None:
        """See ``Network``."""
        raise NotImplementedError(node)

    join = isolate

    def cut(self, node: str, other: str) -> None:
        """See ``Network``."""
        raise NotImplementedError(node)

    mend = cut

    def close(self) -> None:
        """See ``Network``."""


class Namespaces:
    """One network namespace per node."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """Make the namespaces; those that an earlier run left are removed first.

        Raises:
            RuntimeError: another run has them.
        """
        self._lock = LOCK.open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError("another soak with namespaces runs on this machine; wait, or use --small") from error
        remove_namespaces()
        self._port = FIRST_PORT
        self._numbers = {node: number for number, node in enumerate(nodes, 2)}
        _ip("netns", "add", SWITCH)
        _ip("-n", SWITCH, "link", "add", BRIDGE, "type", "bridge")
        _ip("-n", SWITCH, "link", "set", BRIDGE, "up")
        for node, number in self._numbers.items():
            name = PREFIX + node
            _ip("netns", "add", name)
            peer = ["peer", "name", "eth0", "netns", name]
            _ip("-n", SWITCH, "link", "add", _port(number), "type", "veth", *peer)
            _ip("-n", SWITCH, "link", "set", _port(number), "master", BRIDGE, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def address(self, node: str) -> str:
        """See ``Network``."""
        return f"{SUBNET}.{self._numbers[node]}"

    def port(self) -> int:
        """See ``Network``."""
        self._port += 1
        return self._port

    def inside(self, node: str, command: Sequence[str]) -> list[str]:
        """See ``Network``."""
        return ["ip", "netns", "exec", PREFIX + node, *command]

    def isolate(self, node: str) -> None:
        """See ``Network``."""
        _ip("-n", SWITCH, "link", "set", _port(self._numbers[node]), "down")

    def join(self, node: str) -> None:
        """See ``Network``."""
        _ip("-n", SWITCH, "link", "set", _port(self._numbers[node]), "up")

    def cut(self, node: str, other: str) -> None:
        """See ``Network``."""
        _ip("-n", PREFIX + other, "route", "replace", "blackhole", f"{self.address(node)}/32")

    def mend(self, node: str, other: str) -> None:
        """See ``Network``."""
        _ip("-n", PREFIX + other, "route", "delete", "blackhole", f"{self.address(node)}/32")

    def close(self) -> None:
        """See ``Network``."""
        remove_namespaces()
        self._lock.close()


def can_make_namespaces() -> bool:
    """Say whether this user may make network namespaces."""
    try:
        _ip("netns", "add", f"{PREFIX}probe")
        _ip("netns", "delete", f"{PREFIX}probe")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def remove_namespaces() -> None:
    """Remove all namespaces of this and of earlier runs."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        name = line.split()[0]
        if name.startswith(PREFIX):
            _ip("netns", "delete", name)


def _port(number: int) -> str:
    return f"soak-port-{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
