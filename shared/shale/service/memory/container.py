"""The memory that a container, or else the machine, gives to this process.

Sources: the kernel's documentation of control groups, version 2 (``memory.max``) and version 1
(``memory.limit_in_bytes``).  A limit of any group above applies, too.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from shale.core.lazy_dataclass import dataclass

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 has no word for no limit, but a number close to 2**63."""


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """Bytes, and where the number comes from, for messages."""

    size_bytes: int
    source: str


def available_memory(root: Path = Path("/")) -> AvailableMemory:
    """Return the lowest limit of the control groups of this process, else the memory of the machine.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    limits = list(_group_limits(root))
    machine_bytes = _machine_bytes()
    if limits and min(limits) < machine_bytes:
        return AvailableMemory(min(limits), "the container")
    return AvailableMemory(machine_bytes, "the machine")


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no POSIX system
        return _NO_LIMIT_BYTES


def _group_limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _limits_above(mount: Path, path: str, name: str) -> Iterator[int]:
    """Yield the limits of a group and of those above it.

    In a container the path may be that of the host, and the mount may show the group of the container as its root.
    """
    group = mount / path.lstrip("/")
    for each in (group, *group.parents):
        limit = _read_limit(each / name)
        if limit is not None:
            yield limit
        if each == mount:
            return


def _read_limit(path: Path) -> int | None:
    try:
        limit = int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return limit if 0 < limit < _NO_LIMIT_BYTES else None
