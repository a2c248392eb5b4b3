"""The memory of daemons, sampled."""

import time
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096


@dataclass
class MemorySamples:
    """Resident bytes of instances over time."""

    limit_bytes: int
    samples: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """For each node; times of the monotonic clock."""
    peaks: dict[str, int] = field(default_factory=dict)
    """For each instance."""

    def sample(self, pids: dict[str, tuple[str, int]]) -> None:
        """Read the memory of each process."""
        now = time.monotonic()
        for node, (instance, pid) in pids.items():
            size = resident_bytes(pid)
            if size:
                self.samples.setdefault(node, []).append((now, size))
                self.peaks[instance] = max(self.peaks.get(instance, 0), size)

    def above_limit(self, judged: tuple[str, ...]) -> list[str]:
        """Return the instances of these nodes that exceeded the limit."""
        return [
            f"{instance}: {peak >> 20} MiB; the limit is {self.limit_bytes >> 20} MiB"
            for instance, peak in sorted(self.peaks.items())
            if peak > self.limit_bytes and instance.rpartition(".")[0] in judged
        ]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
