"""What a run has started and mounted, in a file, so that the next run can end it after a crash."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path


class Leftovers:
    """Processes by id and time of start, and mounts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._processes: dict[int, str] = {}
        self._mounts: list[str] = []
        self._owner = (os.getpid(), _start_time(os.getpid()))

    def started(self, pid: int) -> None:
        """Note a process."""
        self._processes[pid] = _start_time(pid)
        self._write()

    def ended(self, pid: int) -> None:
        """Forget a process."""
        self._processes.pop(pid, None)
        self._write()

    def mounted(self, folder: Path) -> None:
        """Note a mount."""
        self._mounts.append(str(folder))
        self._write()

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"owner": self._owner, "processes": self._processes, "mounts": self._mounts}))
        fresh.replace(self._file)

    def clear(self) -> None:
        """Unmount what was mounted; all processes have ended."""
        for folder in reversed(self._mounts):
            subprocess.run(["umount", folder], check=False, capture_output=True)
        self._mounts.clear()
        self._file.unlink(missing_ok=True)


def end_leftovers(file: Path) -> None:
    """End the processes of a run that crashed, and remove its mounts; a reused process id is left alone.

    Raises:
        RuntimeError: that run has not ended.
    """
    if not file.exists():
        return
    left = json.loads(file.read_text())
    owner, start = left["owner"]
    if _start_time(owner) == start:
        raise RuntimeError(f"another soak of this folder runs, with the process id {owner}; use another --folder")
    for pid, start in left["processes"].items():
        if start and _start_time(int(pid)) == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for folder in reversed(left["mounts"]):
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)
    file.unlink()


def _start_time(pid: int) -> str:
    """Return the time of a process's start in ticks since boot; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
