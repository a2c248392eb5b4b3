"""The bytes of a streamed object on their way into its staged file, through the page cache or past it.

Past it a large object costs a fraction of the CPU, and drives nothing out of the cache (docs/adr/0005).
``O_DIRECT`` wants memory, offsets and lengths that are multiples of a block.  Parts of a stream are nothing of the
kind, so they are copied into one aligned buffer, and whenever it is full it goes to the disk in one call.  What is
left of it at the end goes through the page cache.  For an SST that is its footer and the end of its index, which every
reader asks for first.

Not every file system takes such writes (some FUSE and overlay file systems refuse to open, others refuse to write).
One refusal, and the upload goes on with ordinary writes of the same bytes at the same offsets.
"""

import errno
import mmap
import os
from typing import Final

from shale.store import files
from shale.store.port import Buffer

STAGING_BYTES: Final = 1024 * 1024
"""One write.  Larger ones save nothing measurable, and every upload in progress holds this much memory."""

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
        while len(left):
            step = min(len(left), STAGING_BYTES - self._filled)
            self._memory[self._filled : self._filled + step] = left[:step]
            self._filled += step
            left = left[step:]
            if self._filled == STAGING_BYTES:
                self._write_out()

    def finish(self) -> None:
        """Write what is left.  The file is complete then, not yet durable."""
        self._write_out()

    def _write_out(self) -> None:
        data = self._memory[: self._filled]
        # A write that stopped short met the end of the disk or of a limit; what it left has lost its alignment.
        done = self._write_direct(data) if len(data) == STAGING_BYTES else 0
        if done < len(data):
            files.write_all_at(self._staged, data[done:], self._offset + done)
        self._offset += len(data)
        self._filled = 0

    def _write_direct(self, data: memoryview) -> int:
        """How many bytes of the front are written now: none where the file system wants ordinary writes."""
        if self.was_refused:
            return 0
        try:
            fd = os.open(self._staged, os.O_WRONLY | os.O_CLOEXEC | _FLAG)
            try:
                return os.pwrite(fd, data, self._offset)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            self.was_refused = True
            return 0
