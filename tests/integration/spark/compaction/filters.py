"""Filters that make a merge die or hang in the middle; tasks import them by name."""

import os
import signal
import tempfile
import time
from pathlib import Path

from shale.compaction.filters import FilterContext, RowBatch

AFTER_BYTES = 400_000
"""Of a range: some SSTs are finished by then, and others are not."""
REPORTED_S = 0.5
"""By then the driver has heard of what is finished."""


def mark(context: FilterContext) -> Path:
    """Create a file for a range of a job, by which a filter recognizes a later attempt."""
    start = (context.key_range.start.key or b"").hex()
    return Path(tempfile.gettempdir()) / f"shale-{context.job_id}-{start}"


class DiesOnce:
    """A filter that kills its process in the first attempt."""

    def __init__(self, context: FilterContext) -> None:
        self._mark = mark(context)
        self._seen_bytes = 0

    def filter(self, batch: RowBatch) -> None:
        """Keep all rows."""
        self._seen_bytes += batch.rows.size_bytes
        if self._seen_bytes > AFTER_BYTES and not self._mark.exists():
            self._mark.touch()
            time.sleep(REPORTED_S)
            self.strike()

    def strike(self) -> None:
        """Kill the process, as the kernel does for lack of memory."""
        os.kill(os.getpid(), signal.SIGKILL)

    def finish(self) -> None:
        """Return no rows: none are buffered."""


class HangsOnce(DiesOnce):
    """A filter that hangs in the first attempt."""

    def strike(self) -> None:
        """Sleep longer than any test waits."""
        time.sleep(600)
