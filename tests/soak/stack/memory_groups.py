"""A control group with a memory limit for each daemon: the kernel kills one that exceeds it."""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from tests.checks.control_group import ControlGroup, control_group, unusable_because
from tests.soak.stack.leftovers import Leftovers


@dataclass(frozen=True)
class GroupMemory:
    """What the kernel says about one node: of all its instances, with the pages of files that they read and wrote."""

    node: str
    peak_bytes: int
    limit_bytes: int
    kills: int

    def __str__(self) -> str:
        """Return one line for the report."""
        killed = f", {self.kills} killed" if self.kills else ""
        return f"{self.node} {self.peak_bytes >> 20} of {self.limit_bytes >> 20} MiB{killed}"


class MemoryGroups:
    """The groups of one run."""

    def __init__(self, nodes: Iterable[str], limit_bytes: int, leftovers: Leftovers) -> None:
        """Make a group for each node.

        Raises:
            RuntimeError: this machine or this user does not allow it.
        """
        if (reason := unusable_because()) is not None:
            raise RuntimeError(reason)
        self._limit_bytes = limit_bytes
        self._stack = ExitStack()
        self._groups: dict[str, ControlGroup] = {}
        for node in nodes:
            made = self._stack.enter_context(control_group(f"shale-soak-{os.getpid()}-{node}", limit_bytes))
            leftovers.made_folder(made.path)
            self._groups[node] = made

    @property
    def prefixes(self) -> Mapping[str, tuple[str, ...]]:
        """For each node, the command that starts another one in its group."""
        return {node: group.prefix for node, group in self._groups.items()}

    def memory(self) -> list[GroupMemory]:
        """Return what the kernel says about each node."""
        return [
            GroupMemory(node, group.peak_bytes, self._limit_bytes, group.kills) for node, group in self._groups.items()
        ]

    def close(self) -> None:
        """Remove the groups; all processes have ended."""
        self._stack.close()
