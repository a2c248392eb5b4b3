"""The merge sources of a job, as rows or as stored blocks."""

from collections.abc import Sequence

from shale.concurrency.read_ahead import ReadAhead
from shale.core.lazy_dataclass import dataclass
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource, RunSource, SpanOptions, SstSource
from shale.types import KeyRange
from shale_compactor.execution.job import Job


@dataclass(frozen=True, slots=True)
class JobInputs:
    """Creates sources in order of precedence: L0s, newest first, then runs.

    Args:
        job: the job.
        reader: reads its inputs.
        ahead: starts the read-ahead tasks.
    """

    job: Job
    reader: SstReader
    ahead: ReadAhead

    @property
    def source_count(self) -> int:
        """Number of sources; the same for all ranges."""
        return len(self.job.l0) + len(self.job.runs)

    def rows(self, keys: KeyRange, read_bytes: int) -> Sequence[SstSource | RunSource]:
        """Return sources of decoded rows with reads of ``read_bytes``, measured uncompressed."""
        reading: SpanOptions = {"read_ahead": self.ahead, "low_memory": True}
        l0 = [SstSource(self.reader, view, keys, read_bytes, **reading) for view in self.job.l0]
        runs = [RunSource(self.reader, run, keys, read_bytes, **reading) for run in self.job.runs]
        return [*l0, *runs]

    def blocks(self, keys: KeyRange, read_bytes: int) -> Sequence[BlockSource]:
        """Return sources of stored blocks with reads of ``read_bytes``, measured uncompressed."""
        levels = [*((view,) for view in self.job.l0), *(run.ssts for run in self.job.runs)]
        reading: SpanOptions = {"read_ahead": self.ahead, "low_memory": True}
        return [BlockSource(self.reader, views, keys, read_bytes, **reading) for views in levels]
