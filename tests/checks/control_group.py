"""A control group of Linux with a memory limit, of version 2 or 1, for a program that starts daemons in it."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LEAVE_S = 10.0


class ControlGroup:
    """A group with a memory limit and without swap.

    Args:
        path: its directory.
        is_v2: the version of the hierarchy.
    """

    def __init__(self, path: Path, *, is_v2: bool) -> None:
        self.path = path
        self._is_v2 = is_v2

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command that starts another one in this group."""
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"))

    @property
    def kills(self) -> int:
        """How many processes the kernel killed because of the limit."""
        name = "memory.events" if self._is_v2 else "memory.oom_control"
        fields = dict(line.split() for line in (self.path / name).read_text().splitlines())
        return int(fields.get("oom_kill", 0))

    @property
    def peak_bytes(self) -> int:
        """The most memory of the group, with the pages of files that the kernel would take back."""
        return int((self.path / ("memory.peak" if self._is_v2 else "memory.max_usage_in_bytes")).read_text())


def unusable_because() -> str | None:
    """Return why no group with a limit can be made here; ``None``: one can."""
    try:
        with control_group("shale-probe", 64 << 20):
            return None
    except OSError as error:
        return f"no control group can be made: {error}"


@contextlib.contextmanager
def control_group(name: str, limit_bytes: int) -> Iterator[ControlGroup]:
    """Make a group below that of this process; remove it at the end, after its processes have ended.

    Raises:
        OSError: that is not permitted here.
    """
    parent, is_v2 = _own_group()
    path = parent / name
    path.mkdir()
    try:
        if is_v2:
            (path / "memory.max").write_text(str(limit_bytes))
            (path / "memory.swap.max").write_text("0")
        else:
            (path / "memory.limit_in_bytes").write_text(str(limit_bytes))
            (path / "memory.memsw.limit_in_bytes").write_text(str(limit_bytes))
        yield ControlGroup(path, is_v2=is_v2)
    finally:
        _remove(path)


def _own_group() -> tuple[Path, bool]:
    """Return the group of this process in the hierarchy of memory, and whether it is of version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _existing(ROOT / "memory", path), False
    if "memory" not in (ROOT / "cgroup.controllers").read_text().split():
        raise OSError(f"{ROOT} has no controller of memory")
    # Groups with processes cannot have groups with limits below them, so the new one is below the root.
    return ROOT, True


def _existing(mount: Path, path: str) -> Path:
    group = mount / path.lstrip("/")
    return group if group.is_dir() else mount


def _remove(path: Path) -> None:
    deadline_s = time.monotonic() + LEAVE_S
    while True:
        try:
            path.rmdir()
        except OSError:  # a process is still ending
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
        else:
            return
