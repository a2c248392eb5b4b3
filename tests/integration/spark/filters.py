"""Filters that make a merge die or stand still in the middle; tasks import them by name."""

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
    """A file for a range of a job, by which a filter of a later attempt knows that it is not the first."""
    start = (context.key_range.start.key or b"").hex()
    return Path(tempfile.gettempdir()) / f"shale-{context.job_id}-{start}"


class DiesOnce:
    """Kills its process, the first time."""

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
        """As the kernel ends a process that takes too much memory."""
        os.kill(os.getpid(), signal.SIGKILL)

    def finish(self) -> None:
        """Nothing is held back."""


class HangsOnce(DiesOnce):
    """Stands still, the first time."""

    def strike(self) -> None:
        """Longer than any test waits."""
        time.sleep(600)
