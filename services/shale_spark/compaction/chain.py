"""Who writes one range of a compaction, and what it has written so far: the rules, without any socket.

Several attempts at one range may run at once: a copy that Spark started because the first one seemed slow, or one
whose executor was only thought to be lost.  One of them owns the range.  Its SSTs make a chain in key order, and each
new owner goes on behind the last link; what anybody else writes is named by nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shale.errors import CorruptionError
from shale.types import Sst, Ulid


@dataclass(slots=True)
class Chain:
    """The finished SSTs of one range and the attempt that may add to them.

    Args:
        ssts: in key order, earlier attempts' included.
        owner: the id of the attempt that may add; ``None`` while nobody may.
        is_done: the range has all its SSTs, for good.
    """

    ssts: list[Sst] = field(default_factory=list)
    owner: int | None = None
    is_done: bool = False

    @property
    def last(self) -> Sst | None:
        """The SST behind which the range goes on."""
        return self.ssts[-1] if self.ssts else None

    @property
    def last_id(self) -> Ulid | None:
        """The id of ``last``."""
        return self.ssts[-1].id if self.ssts else None

    def hello(self, attempt: int) -> bool:
        """Let an attempt begin; tells whether it owns the range now.

        The one that was started last does, however late the others say hello.  Once a range is done nobody owns it.
        """
        if self.is_done or (self.owner is not None and attempt < self.owner):
            return False
        self.owner = attempt
        return True

    def add(self, attempt: int, position: int, ssts: Iterable[Sst]) -> bool:
        """Append what the owner has finished; ``False``: the range is not this attempt's any more.

        Args:
            attempt: who reports.
            position: how many SSTs the attempt thinks there are before these.
            ssts: in key order.

        Raises:
            CorruptionError: the owner lost count, or the keys do not ascend.
        """
        if attempt != self.owner:
            return False
        if position != len(self.ssts):
            raise CorruptionError(f"SST {position} of a range was reported behind {len(self.ssts)} others")
        for sst in ssts:
            self._append(sst)
        return True

    def finish(self, attempt: int, count: int, last: Ulid | None) -> bool:
        """End the range, if what the attempt thinks it wrote is what is recorded; ``False``: it is not its range.

        Raises:
            CorruptionError: the owner counts otherwise.
        """
        if attempt != self.owner:
            return False
        if (count, last) != (len(self.ssts), self.last_id):
            raise CorruptionError(f"a range ended with {count} SSTs up to {last}, but {len(self.ssts)} are recorded")
        self.is_done, self.owner = True, None
        return True

    def leave(self, attempt: int) -> bool:
        """An attempt is gone; tells whether it leaves the range without an owner."""
        if attempt != self.owner:
            return False
        self.owner = None
        return True

    def _append(self, sst: Sst) -> None:
        last = self.last
        if last is not None:
            end, start = last.info.last_entry, sst.info.first_entry
            if end is not None and start is not None and end > start:
                raise CorruptionError(f"output {sst.id} begins before output {last.id} ends")
        self.ssts.append(sst)
