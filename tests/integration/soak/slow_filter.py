"""A compaction filter that keeps every row and takes its time, so that a small job lasts long enough to be killed."""

import time

from shale.compaction.filters import FilterContext, RowBatch


class Slowly:
    """Sixteen megabytes a second; for processes that tests start."""

    BYTES_PER_SECOND = 16 << 20

    def __init__(self, context: FilterContext) -> None:
        """Nothing depends on the job."""

    def filter(self, batch: RowBatch) -> None:
        """Keep all rows, a little later."""
        time.sleep(batch.rows.size_bytes / self.BYTES_PER_SECOND)

    def finish(self) -> None:
        """Nothing is held back."""


class Crawling(Slowly):
    """Two megabytes a second."""

    BYTES_PER_SECOND = 2 << 20
