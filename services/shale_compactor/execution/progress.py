"""Progress of a running job, shared by its executor and its worker."""

from collections.abc import Callable, Sequence

from shale.types import CompactionContext, KeyRange, Seq, Sst, Subcompaction


class JobProgress:
    """The key ranges of a job and the finished SSTs of each range, in key order."""

    def __init__(
        self,
        *,
        retention_min_seq: Seq,
        resumed: CompactionContext | None = None,
        on_sst: Callable[[Sst], None] = lambda _sst: None,
        on_read: Callable[[int], None] = lambda _size_bytes: None,
        on_first_row: Callable[[], None] = lambda: None,
    ) -> None:
        self.retention_min_seq = retention_min_seq if resumed is None else resumed.retention_min_seq
        self.ranges: tuple[KeyRange, ...] = ()
        self._outputs: list[list[Sst]] = []
        self.read_bytes = 0
        self.merged_bytes = 0
        self.rework_bytes = 0
        self.refused_count = 0
        self.why_refused = ""
        self.on_sst = on_sst
        self._on_read = on_read
        self._on_first_row = on_first_row
        if resumed is not None:
            self.plan([sub.range for sub in resumed.subcompactions])
            self._outputs = [list(sub.output_ssts) for sub in resumed.subcompactions]
        self.recovered_bytes = sum(sst.estimated_size_bytes for sst in self.outputs())

    def note_read(self, size_bytes: int) -> None:
        """Count stored bytes of inputs that were read."""
        self.read_bytes += size_bytes
        self._on_read(size_bytes)

    def note_rows(self, size_bytes: int) -> None:
        """Count bytes of merged rows."""
        if self.merged_bytes == 0:
            self._on_first_row()
        self.merged_bytes += size_bytes

    def note_refused(self, count: int, why: str) -> None:
        """Count operands that stay unmerged because the merge operator failed; the first error is kept."""
        self.refused_count += count
        self.why_refused = self.why_refused or why

    @property
    def is_planned(self) -> bool:
        """Whether the ranges are set; they never change afterwards."""
        return bool(self.ranges)

    def plan(self, ranges: Sequence[KeyRange]) -> None:
        """Set the ranges."""
        assert not self.is_planned
        self.ranges = tuple(ranges)
        self._outputs = [[] for _ in ranges]

    def add(self, index: int, sst: Sst) -> None:
        """Add a finished SST of a range."""
        self._outputs[index].append(sst)
        self.on_sst(sst)

    def last_output(self, index: int) -> Sst | None:
        """Return the last finished SST of a range, after which it continues; ``None`` if there is none."""
        return self._outputs[index][-1] if self._outputs[index] else None

    def outputs(self) -> tuple[Sst, ...]:
        """Return the finished SSTs of all ranges, in key order."""
        return tuple(sst for outputs in self._outputs for sst in outputs)

    def context(self) -> CompactionContext | None:
        """Return the progress that another worker needs to continue; ``None`` before the ranges are set."""
        if not self.is_planned:
            return None
        subcompactions = (
            Subcompaction(range=range_, output_ssts=tuple(outputs))
            for range_, outputs in zip(self.ranges, self._outputs, strict=True)
        )
        return CompactionContext(subcompactions=tuple(subcompactions), retention_min_seq=self.retention_min_seq)
