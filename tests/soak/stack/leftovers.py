"""What a run has started, mounted and made elsewhere, in a file, so that the next run can end it after a crash."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

LEAVE_S = 5.0


class Leftovers:
    """Processes by id and time of start, mounts, and directories."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._processes: dict[int, str] = {}
        self._mounts: list[str] = []
        self._folders: list[str] = []
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

    def made_folder(self, folder: Path) -> None:
        """Note a directory that is empty once all processes have ended: a control group."""
        self._folders.append(str(folder))
        self._write()

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        content = {
            "owner": self._owner,
            "processes": self._processes,
            "mounts": self._mounts,
            "folders": self._folders,
        }
        fresh.write_text(json.dumps(content))
        fresh.replace(self._file)

    def clear(self) -> None:
        """Unmount what was mounted; all processes have ended."""
        for folder in reversed(self._mounts):
            subprocess.run(["umount", folder], check=False, capture_output=True)
        self._mounts.clear()
        self._file.unlink(missing_ok=True)


def end_leftovers(file: Path) -> None:
    """End the processes of a run that crashed, and remove its mounts and directories.

    A process id that was used again is left alone.

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
    for folder in left.get("folders", ()):
        remove_empty(Path(folder))
    file.unlink()


def remove_empty(folder: Path) -> None:
    """Remove a directory, also if a process in it is still ending; leave one that others use."""
    deadline = time.monotonic() + LEAVE_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)
        else:
            return


def _start_time(pid: int) -> str:
    """Return the time of a process's start in ticks since boot; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
