"""The bytes of a streamed object on their way into its staged file, through the page cache or past it.

Past it a large object costs a fraction of the CPU, and drives nothing out of the cache (docs/adr/0005).
``O_DIRECT`` wants memory, offsets and lengths that are multiples of a page.  The parts of a merge lie in memory as they
will lie in the file, so their whole pages are written from where they are.  Everything else is copied into one aligned
buffer, and whenever that is full it goes to the disk in one call.  What is left of it at the end goes through the page
cache.  For an SST that is its footer and the end of its index, which every reader asks for first.

Not every file system takes such writes (some FUSE and overlay file systems refuse to open, others refuse to write).
One refusal, and the upload goes on with ordinary writes of the same bytes at the same offsets.
"""

import errno
import mmap
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from shale.store import files
from shale.store.port import Buffer

STAGING_BYTES: Final = 1024 * 1024
"""One write.  Larger ones save nothing measurable, and every upload in progress holds this much memory."""

_PAGE_BYTES: Final = 4096
_FLAG: Final[int] = getattr(os, "O_DIRECT", 0)
_REFUSALS = {errno.EINVAL, errno.EOPNOTSUPP}

IS_POSSIBLE: Final = _FLAG != 0
"""Whether this operating system has ``O_DIRECT`` (Darwin has not)."""


class BufferedUpload:
    """Writes every part as it comes, through the page cache."""

    def __init__(self, staged: str) -> None:
        self._staged = staged

    def append(self, part: Buffer) -> None:
        """Write a part."""
        files.append(self._staged, part)

    def finish(self) -> None:
        """Nothing is left to write."""


class DirectUpload:
    """Writes past the page cache, a full buffer at a time.

    One step at a time, from whichever thread.  No descriptor outlives a step (``files.stage_empty`` says why), and the
    buffer lives as long as anybody writes from it: a thread whose task was cancelled holds this object.
    """

    def __init__(self, staged: str) -> None:
        """Write nothing yet.

        Args:
            staged: path of an existing, empty file.
        """
        self._staged = staged
        self._memory = memoryview(mmap.mmap(-1, STAGING_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._filled = 0
        self._offset = 0
        self.was_refused = False

    def append(self, part: Buffer) -> None:
        """Take the bytes of a part; it may be changed or freed afterwards.

        Raises:
            OSError: the file is in no defined state; the upload is over.
        """
        left = memoryview(part).cast("B") if len(part) else memoryview(b"")  # no cast takes an empty view
        if len(left) >= STAGING_BYTES and (_address_of(left) - self._offset - self._filled) % _PAGE_BYTES == 0:
            left = self._write_in_place(left)
        while len(left):
            left = self._stage(left, STAGING_BYTES - self._filled)
            if self._filled == STAGING_BYTES:
                self._write_out([self._memory])

    def finish(self) -> None:
        """Write what is left.  The file is complete then, not yet durable."""
        files.write_all_at(self._staged, self._memory[: self._filled], self._offset)

    def _stage(self, data: memoryview, size_max: int) -> memoryview:
        """Copy the front of ``data`` behind what waits, and return the rest of it."""
        size = min(len(data), size_max)
        self._memory[self._filled : self._filled + size] = data[:size]
        self._filled += size
        return data[size:]

    def _write_in_place(self, part: memoryview) -> memoryview:
        """Write what waits and all whole pages of a part that lies as its place in the file does; return the rest."""
        part = self._stage(part, -self._filled % _PAGE_BYTES)
        pages = len(part) // _PAGE_BYTES * _PAGE_BYTES
        self._write_out([self._memory[: self._filled], part[:pages]])
        return part[pages:]

    def _write_out(self, pages: Sequence[memoryview]) -> None:
        """Write whole pages, what waits first."""
        size = sum(map(len, pages))
        # A write that stopped short met the end of the disk or of a limit; what it left has lost its alignment.
        done = self._write_direct(pages)
        at = self._offset
        for data in pages:
            skipped = min(done, len(data))
            if skipped < len(data):
                files.write_all_at(self._staged, data[skipped:], at + skipped)
            done -= skipped
            at += len(data)
        self._offset += size
        self._filled = 0

    def _write_direct(self, pages: Sequence[memoryview]) -> int:
        """How many bytes of the front are written now: none where the file system wants ordinary writes."""
        if self.was_refused:
            return 0
        try:
            fd = os.open(self._staged, os.O_WRONLY | os.O_CLOEXEC | _FLAG)
            try:
                return os.pwritev(fd, [data for data in pages if len(data)], self._offset)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            self.was_refused = True
            return 0


def _address_of(data: memoryview) -> int:
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
