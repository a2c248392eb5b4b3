"""Files that stay open for reads that never wait for a disk.

Such a read asks the kernel for what the page cache holds (``RWF_NOWAIT``).  Files in memory, as on tmpfs, need no flag;
on other file systems without the flag a read may wait, so there are no such reads.
"""

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

_DESCRIPTORS_MAX = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
OPEN_FILES_MAX: Final = 512 if _DESCRIPTORS_MAX < 0 else min(512, _DESCRIPTORS_MAX // 4)
"""Files of one process that may stay open: sockets and other reads need descriptors, too."""

NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_REFUSALS = {errno.EOPNOTSUPP, errno.EINVAL}
_IN_MEMORY = {"tmpfs", "ramfs"}
MOUNTS = Path("/proc/self/mountinfo")
_open_fds: set[int] = set()
known_flags: dict[int, int | None] = {}
"""By device."""


class OpenFile:
    """A file that is open until the object is dropped."""

    __slots__ = ("_fd", "_flags")

    def __init__(self, fd: int, flags: int) -> None:
        """Take over a descriptor; ``flags``: see ``nowait_flags``."""
        self._fd = fd
        self._flags = flags
        _open_fds.add(fd)

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Fill ``buffer`` from byte ``start`` on and return the bytes read: fewer if the rest would wait or fail."""
        try:
            return os.preadv(self._fd, (buffer,), start, self._flags)
        except OSError:
            return 0

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        _open_fds.discard(self._fd)
        _close(self._fd)


class LocalFiles:
    """Opens files of one file system, until it turns out that their reads may wait.

    On a remote file system an open waits, too, so it is tried once.
    """

    __slots__ = ("_may_wait",)

    def __init__(self) -> None:
        """Open nothing."""
        self._may_wait = False

    def open(self, path: str) -> OpenFile | None:
        """Open a file.

        Returns:
            ``None``: it cannot be opened, or its reads may wait for a disk.
        """
        if self._may_wait:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        flags = nowait_flags(fd)
        if flags is None:
            os.close(fd)
            self._may_wait = True
            return None
        return OpenFile(fd, flags)


def has_too_many_files() -> bool:
    """Whether a file has to be dropped before another one may stay open."""
    return open_files() >= OPEN_FILES_MAX


def open_files() -> int:
    """Return how many files are open."""
    return len(_open_fds)


def nowait_flags(fd: int) -> int | None:
    """Return the flags with which ``preadv`` does not wait for a disk; ``None``: there are none."""
    device = os.fstat(fd).st_dev
    if device not in known_flags:
        known_flags[device] = 0 if _is_in_memory(device) else _probe(fd)
    return known_flags[device]


def _probe(fd: int) -> int | None:
    if NOWAIT is None:
        return None
    try:
        os.preadv(fd, (bytearray(1),), 0, NOWAIT)
    except OSError as error:
        if error.errno in _REFUSALS:
            return None
    return NOWAIT


def _is_in_memory(device: int) -> bool:
    """Whether a device is a file system in memory, by the table of mounts (proc_pid_mountinfo(5))."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    return any(line.split()[2] == name and line.partition(" - ")[2].partition(" ")[0] in _IN_MEMORY for line in lines)
