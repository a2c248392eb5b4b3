"""The sources of a job's merge, as rows or as stored blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource, RunSource, SstSource
from shale.types import KeyRange
from shale_compactor.execution.job import Job


@dataclass(frozen=True, slots=True)
class JobInputs:
    """Makes sources in order of precedence: L0s, newest first, then runs.

    Args:
        job: whose inputs.
        reader: reads them.
        ahead: where the next reads are started.
        read_bytes: size of one read.
    """

    job: Job
    reader: SstReader
    ahead: ReadAhead
    read_bytes: int

    def rows(self, keys: KeyRange) -> Sequence[SstSource | RunSource]:
        """Sources of rows in columns."""
        l0 = [SstSource(self.reader, view, keys, self.read_bytes, read_ahead=self.ahead) for view in self.job.l0]
        runs = [RunSource(self.reader, run, keys, self.read_bytes, read_ahead=self.ahead) for run in self.job.runs]
        return [*l0, *runs]

    def blocks(self, keys: KeyRange) -> Sequence[BlockSource]:
        """Sources of stored blocks."""
        levels = [*((view,) for view in self.job.l0), *(run.ssts for run in self.job.runs)]
        return [BlockSource(self.reader, views, keys, self.read_bytes, read_ahead=self.ahead) for views in levels]
