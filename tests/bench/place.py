"""Where a benchmark keeps its files: in memory, where no operation waits for a disk, or on a disk."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_MEMORY = "/dev/shm"
_FREE_BYTES_MIN = 2 << 30


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and the kind of its file system."""

    folder: str
    file_system: str

    @classmethod
    def memory(cls) -> "Place":
        """Return a folder in memory; if there is none with 2 GiB of room, the folder of temporary files."""
        place = cls.of(_MEMORY)
        has_room = place.file_system == "tmpfs" and shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN
        return place if has_room else cls.of(tempfile.gettempdir())

    @classmethod
    def disk(cls) -> "Place":
        """Return ``SHALE_BENCH_DIR`` or the folder of temporary files."""
        return cls.of(os.environ.get("SHALE_BENCH_DIR") or tempfile.gettempdir())

    @classmethod
    def of(cls, folder: str) -> "Place":
        """Return a folder with what ``/proc/mounts`` says of it."""
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        path = Path(folder).resolve()
        holding = [(len(mount), kind) for mount, kind in mounts if path.is_relative_to(mount)]
        return cls(folder, max(holding)[1])

    def __str__(self) -> str:
        return f"{self.folder} ({self.file_system})"
