"""Writes the parts of a streamed object into its staged file, through the page cache or past it.

Past it, a large object costs a fraction of the CPU and evicts nothing from the cache (docs/adr/0005).  ``O_DIRECT``
needs memory, offsets and lengths that are multiples of a page.  The parts of a merge have the alignment in memory that
they will have in the file, so their whole pages are written in place.  Everything else is copied into one aligned
buffer, which is written in one call when it is full.  Its rest at the end goes through the page cache: the footer of an
SST and the end of its index, which every reader reads first.

Some file systems refuse such writes when a file is opened, others when it is written.  After one refusal the upload
continues with ordinary writes of the same bytes at the same offsets.
"""

import errno
import mmap
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.kernels.columns import address_of
from shale.store.local_store import files

STAGING_BYTES: Final = 1024 * 1024
"""One write.  Larger ones save nothing measurable, and every upload in progress holds this much memory."""

_PAGE_BYTES: Final = 4096
_FLAG: Final[int] = getattr(os, "O_DIRECT", 0)
_REFUSALS = {errno.EINVAL, errno.EOPNOTSUPP}

IS_POSSIBLE: Final = _FLAG != 0
"""Whether this operating system has ``O_DIRECT`` (Darwin has not)."""


class BufferedUpload:
    """Writes every part at once, through the page cache."""

    def __init__(self, staged: str) -> None:
        self._staged = staged

    def append(self, part: BytesLike) -> None:
        """Write a part."""
        files.append(self._staged, part)

    def finish(self) -> None:
        """Do nothing: every part was written."""


class DirectUpload:
    """Writes past the page cache, a full buffer at a time.

    One step at a time, from any thread.  No descriptor outlives a step (``files.stage_empty`` says why), and the
    buffer lives as long as a thread writes from it: a thread whose task was cancelled holds this object.
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

    def append(self, part: BytesLike) -> None:
        """Take the bytes of a part; it may be changed or freed afterwards.

        Raises:
            OSError: the file is in no defined state; the upload is over.
        """
        left = memoryview(part).cast("B") if len(part) else memoryview(b"")  # no cast takes an empty view
        at = self._offset + self._filled
        if len(left) >= STAGING_BYTES and (address_of(np.frombuffer(left, np.uint8)) - at) % _PAGE_BYTES == 0:
            left = self._write_in_place(left)
        while len(left):
            left = self._stage(left, STAGING_BYTES - self._filled)
            if self._filled == STAGING_BYTES:
                self._write_out([self._memory])

    def finish(self) -> None:
        """Write what is left.  The file is complete then, not yet durable."""
        files.write_all_at(self._staged, self._memory[: self._filled], self._offset)

    def _stage(self, data: memoryview, size_max: int) -> memoryview:
        """Append the front of ``data`` to the staging buffer and return the rest of it."""
        size = min(len(data), size_max)
        self._memory[self._filled : self._filled + size] = data[:size]
        self._filled += size
        return data[size:]

    def _write_in_place(self, part: memoryview) -> memoryview:
        """Write the staging buffer and all whole pages of a part with the alignment of the file; return the rest."""
        part = self._stage(part, -self._filled % _PAGE_BYTES)
        pages = len(part) // _PAGE_BYTES * _PAGE_BYTES
        self._write_out([self._memory[: self._filled], part[:pages]])
        return part[pages:]

    def _write_out(self, pages: Sequence[memoryview]) -> None:
        """Write whole pages, those of the staging buffer first."""
        size = sum(map(len, pages))
        # A short write met the end of the disk or a limit; the rest has lost its alignment.
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
        """Write past the page cache and return the bytes written: none if the file system refuses such writes."""
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
