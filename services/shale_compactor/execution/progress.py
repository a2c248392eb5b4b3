"""How far a running job is: shared by the executor that gets on and the worker that tells others."""

from collections.abc import Callable, Sequence

from shale.types import CompactionContext, KeyRange, Seq, Sst, Subcompaction


class JobProgress:
    """The plan of a job and the SSTs that each range has finished, in key order."""

    def __init__(
        self,
        *,
        retention_min_seq: Seq,
        resumed: CompactionContext | None = None,
        on_sst: Callable[[Sst], None] = lambda _sst: None,
        on_read: Callable[[int], None] = lambda _size_bytes: None,
    ) -> None:
        self.retention_min_seq = retention_min_seq if resumed is None else resumed.retention_min_seq
        self.ranges: tuple[KeyRange, ...] = ()
        self._outputs: list[list[Sst]] = []
        self.read_bytes = 0
        self.merged_bytes = 0
        self.repeated_bytes = 0
        self.refused_count = 0
        self.why_refused = ""
        self._on_sst = on_sst
        self._on_read = on_read
        self.on_first_row: Callable[[], None] = lambda: None
        if resumed is not None:
            self.plan([sub.range for sub in resumed.subcompactions])
            self._outputs = [list(sub.output_ssts) for sub in resumed.subcompactions]
        self.recovered_bytes = sum(sst.estimated_size_bytes for sst in self.outputs())

    def note_read(self, size_bytes: int) -> None:
        """Count stored bytes of the inputs that have arrived."""
        self.read_bytes += size_bytes
        self._on_read(size_bytes)

    def note_rows(self, size_bytes: int) -> None:
        """Count rows that left the merge."""
        if self.merged_bytes == 0:
            self.on_first_row()
        self.merged_bytes += size_bytes

    def note_refused(self, count: int, why: str) -> None:
        """Count operands that stay unfolded, because the merge operator refuses them; the first reason is kept."""
        self.refused_count += count
        self.why_refused = self.why_refused or why

    @property
    def is_planned(self) -> bool:
        """Whether the ranges are fixed; they never change afterwards."""
        return bool(self.ranges)

    def plan(self, ranges: Sequence[KeyRange]) -> None:
        """Fix the ranges."""
        assert not self.is_planned
        self.ranges = tuple(ranges)
        self._outputs = [[] for _ in ranges]

    def add(self, index: int, sst: Sst) -> None:
        """Note a finished SST of a range."""
        self._outputs[index].append(sst)
        self._on_sst(sst)

    def last_output(self, index: int) -> Sst | None:
        """The SST behind which a range goes on."""
        return self._outputs[index][-1] if self._outputs[index] else None

    def outputs(self) -> tuple[Sst, ...]:
        """The SSTs of all ranges, in key order."""
        return tuple(sst for outputs in self._outputs for sst in outputs)

    def context(self) -> CompactionContext | None:
        """What another worker needs to go on; ``None`` before the plan is made."""
        if not self.is_planned:
            return None
        subcompactions = (
            Subcompaction(range=range_, output_ssts=tuple(outputs))
            for range_, outputs in zip(self.ranges, self._outputs, strict=True)
        )
        return CompactionContext(subcompactions=tuple(subcompactions), retention_min_seq=self.retention_min_seq)
