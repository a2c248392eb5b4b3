"""The options of a run."""

from dataclasses import dataclass
from pathlib import Path

MEMORY_LIMIT_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    seconds: float
    seed: int
    folder: Path
    report: Path
    faults: tuple[str, ...] | None = None
    """The kinds to draw from; ``None``: all that the machine allows."""
    previous: str | None = None
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    has_memory_groups: bool = False
    """Whether the kernel enforces the memory limit, by a control group for each daemon."""
    is_small: bool = False
    """Fewer processes and clients, no namespaces, and the S3 server of the tests."""
    pause_s: tuple[float, float] = (3.0, 9.0)

    def command(self, seed: int) -> str:
        """Return the command that repeats the run."""
        words = [f"python -m tests.soak --minutes {self.seconds / 60:g} --seed {seed}"]
        words += [f"--faults {','.join(self.faults)}"] if self.faults is not None else []
        words += [f"--previous {self.previous}"] if self.previous else []
        if self.memory_limit_bytes != MEMORY_LIMIT_BYTES:
            words += [f"--memory-limit {self.memory_limit_bytes >> 20}"]
        words += ["--memory-groups"] if self.has_memory_groups else []
        words += ["--small"] if self.is_small else []
        return " ".join(words)


def names_in(text: str | None) -> tuple[str, ...] | None:
    """Split a list of names; ``None`` and ``all`` are all of them."""
    if text is None or text == "all":
        return None
    return tuple(name for name in text.split(",") if name and name != "none")
