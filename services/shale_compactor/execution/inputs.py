"""The merge sources of a job, as rows or as stored blocks."""

from collections.abc import Sequence

from shale.concurrency.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource, SpanOptions, SstViewsSource
from shale.sst.view_chains import disjoint_chains
from shale.types import KeyRange
from shale_compactor.execution.job import Job


class JobInputs:
    """Creates sources in order of precedence: L0s, newest first, then runs.

    L0s with disjoint keys are one source, like a run: with one for each, a merge would hold a block of each at once.

    Args:
        job: the job.
        reader: reads its inputs.
        ahead: starts the read-ahead tasks.
    """

    def __init__(self, job: Job, reader: SstReader, ahead: ReadAhead) -> None:
        self.reader = reader
        self._levels = [*disjoint_chains(job.l0), *(run.ssts for run in job.runs)]
        self._reading: SpanOptions = {"read_ahead": ahead, "low_memory": True}

    @property
    def source_count(self) -> int:
        """Number of sources; the same for all ranges."""
        return len(self._levels)

    def rows(self, keys: KeyRange, read_bytes: int) -> Sequence[SstViewsSource]:
        """Return sources of decoded rows with reads of ``read_bytes``, measured uncompressed."""
        return [SstViewsSource(self.reader, views, keys, read_bytes, **self._reading) for views in self._levels]

    def blocks(self, keys: KeyRange, read_bytes: int) -> Sequence[BlockSource]:
        """Return sources of stored blocks with reads of ``read_bytes``, measured uncompressed."""
        return [BlockSource(self.reader, views, keys, read_bytes, **self._reading) for views in self._levels]
