"""A slow compaction filter that keeps every row, so that a test can kill a small job."""

import time

from shale.compaction.filters import FilterContext, RowBatch


class Slowly:
    """A filter of sixteen megabytes a second; for processes that tests start."""

    BYTES_PER_SECOND = 16 << 20

    def __init__(self, context: FilterContext) -> None:
        """Ignore the job."""

    def filter(self, batch: RowBatch) -> None:
        """Keep all rows after a pause."""
        time.sleep(batch.rows.size_bytes / self.BYTES_PER_SECOND)

    def finish(self) -> None:
        """Return no rows: none are buffered."""


class Crawling(Slowly):
    """A filter of two megabytes a second."""

    BYTES_PER_SECOND = 2 << 20
