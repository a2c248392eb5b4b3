"""A compaction filter that always raises, for workers in processes of their own."""

from shale.compaction.filters import FilterContext, RowBatch


class Raising:
    """A filter that fails every job."""

    def __init__(self, context: FilterContext) -> None:
        """Ignore the job."""

    def filter(self, batch: RowBatch) -> None:
        """Raise."""
        raise ZeroDivisionError("in a filter")

    def finish(self) -> None:
        """Return no rows: none are buffered."""
