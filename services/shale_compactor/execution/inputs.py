"""The sources of a job's merge, as rows or as stored blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource, RunSource, SpanOptions, SstSource
from shale.types import KeyRange
from shale_compactor.execution.job import Job


@dataclass(frozen=True, slots=True)
class JobInputs:
    """Makes sources in order of precedence: L0s, newest first, then runs.

    Args:
        job: whose inputs.
        reader: reads them.
        ahead: where the next reads are started.
    """

    job: Job
    reader: SstReader
    ahead: ReadAhead

    @property
    def source_count(self) -> int:
        """How many sources there are, whatever the range."""
        return len(self.job.l0) + len(self.job.runs)

    def rows(self, keys: KeyRange, read_bytes: int) -> Sequence[SstSource | RunSource]:
        """Sources of rows in columns, read by so many bytes, unpacked."""
        reading: SpanOptions = {"read_ahead": self.ahead, "is_frugal": True}
        l0 = [SstSource(self.reader, view, keys, read_bytes, **reading) for view in self.job.l0]
        runs = [RunSource(self.reader, run, keys, read_bytes, **reading) for run in self.job.runs]
        return [*l0, *runs]

    def blocks(self, keys: KeyRange, read_bytes: int) -> Sequence[BlockSource]:
        """Sources of stored blocks, read by so many bytes, unpacked."""
        levels = [*((view,) for view in self.job.l0), *(run.ssts for run in self.job.runs)]
        reading: SpanOptions = {"read_ahead": self.ahead, "is_frugal": True}
        return [BlockSource(self.reader, views, keys, read_bytes, **reading) for views in levels]
