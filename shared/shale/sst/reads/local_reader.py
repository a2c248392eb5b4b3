"""Reads of SSTs that never wait: from files of a local directory or of the disk cache that the page cache holds.

Files stay open until the next manifest, so that an SST which it does not name takes no space for long after gc has
deleted it.  Until then it is read on: its bytes never change.  What cannot be read at once, or is damaged, is left to
the reads that wait, which find out why.
"""

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from shale.core.open_file import has_too_many_files
from shale.kernels.columns import address_of
from shale.sst.disk_cache_options import DEFAULT_OPEN_FILES
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject, ObjectStore, open_local_of

if TYPE_CHECKING:
    from shale.concurrency.background_tasks import BackgroundTasks
    from shale.env import Env
    from shale.kernels.rows import U8
    from shale.sst.disk_cache import DiskCache
    from shale.sst.reads.part_reader import PartReader

OpenPart = Callable[[SstSlot, int], LocalObject | None]
"""Opens the file with one part of an SST; ``None``: there is none, or reading it may wait."""

WHOLE_OBJECT: Final = 1 << 62
"""Size of the parts where an object is one file."""

_BUFFER_BYTES = 16 * 1024


class LocalReader:
    """Reads of one database.  Belongs to one event loop.

    Args:
        open_part: opens files.
        part_bytes: the size of a part.
        files_max: files that stay open.
    """

    def __init__(
        self, open_part: OpenPart, part_bytes: int = WHOLE_OBJECT, files_max: int = DEFAULT_OPEN_FILES
    ) -> None:
        self._files_max = files_max
        self._open_part = open_part
        self._part_bytes = part_bytes
        self._opened: deque[tuple[weakref.ref[SstSlot], int]] = deque()
        self._is_closed = False
        self._buffer: U8 = np.empty(0, np.uint8)
        self._view = self._buffer.data
        self.buffer_address = 0
        """Where ``read`` puts bytes."""

    def read(self, slot: SstSlot, start: int, end: int) -> memoryview | None:
        """Return bytes ``[start, end)``, which the next call overwrites; ``None`` if that would wait."""
        size = end - start
        if size > len(self._view):
            self._grow(size)
        into = self._view[:size]
        return into if self.fill(slot, start, into) else None

    def fill(self, slot: SstSlot, start: int, into: memoryview) -> bool:
        """Fill a buffer with the bytes from ``start`` on; return false if that would wait."""
        size = len(into)
        part, at = divmod(start, self._part_bytes)
        filled = 0
        while filled < size:
            file = slot.files.get(part)
            if file is None and (file := self._open(slot, part)) is None:
                return False
            end = min(size, filled + self._part_bytes - at)
            piece = into if end - filled == size else into[filled:end]
            if file.read_into(piece, at) != len(piece):
                return False
            filled = end
            part, at = part + 1, 0
        return True

    def open(self, slot: SstSlot) -> LocalObject | None:
        """Return the open file of an SST that is in one file; ``None``: reads of it may wait, or too many are open."""
        return slot.files.get(0) or (None if has_too_many_files() else self._open(slot, 0))

    def close_files(self) -> None:
        """Close every file; the next read opens what it needs."""
        while self._opened:
            self._close_first()

    def close(self) -> None:
        """Close every file for good: a scan that goes on after its database was closed uses reads that wait."""
        self._is_closed = True
        self.close_files()

    def _grow(self, size: int) -> None:
        self._buffer = np.empty(max(_BUFFER_BYTES, 1 << (size - 1).bit_length()), np.uint8)
        self._view = self._buffer.data
        self.buffer_address = address_of(self._buffer)

    def _open(self, slot: SstSlot, part: int) -> LocalObject | None:
        """Open a file; close those that were opened first, if there are too many."""
        if self._is_closed:
            return None
        while self._opened and (len(self._opened) >= self._files_max or has_too_many_files()):
            self._close_first()
        may_stay_open = not has_too_many_files()
        file = self._open_part(slot, part)
        if file is not None and may_stay_open:
            slot.files[part] = file
            self._opened.append((weakref.ref(slot), part))
        return file

    def _close_first(self) -> None:
        ref, part = self._opened.popleft()
        if (slot := ref()) is not None:
            slot.files.pop(part, None)


def part_reader_of(
    disk: "DiskCache | None", store: ObjectStore, env: "Env", background: "BackgroundTasks | None"
) -> "PartReader | None":
    """Return the reads through a disk cache; its modules are imported by processes that have one."""
    if disk is None:
        return None
    from shale.sst.reads.part_reader import PartReader

    return PartReader(disk, store.url, env, background)


def local_reader_of(store: ObjectStore, parts: "PartReader | None") -> LocalReader | None:
    """Return the reader for the disk cache, else for the store; ``None``: neither has files on this machine."""
    if parts is not None:
        return LocalReader(parts.open_part, parts.part_bytes, parts.max_open_files)
    open_local = open_local_of(store)
    return None if open_local is None else LocalReader(lambda slot, _: open_local(slot.path))
