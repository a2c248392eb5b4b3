"""The output of one range of a compaction and the attempt that may write it: the rules, without any socket.

Several attempts at one range may run at once: a speculative copy that Spark started, or an attempt whose executor was
wrongly thought to be lost.  One of them owns the range.  Its SSTs are in key order, and each new owner goes on after
the last one; SSTs of other attempts are never referenced.
"""

from collections.abc import Iterable
from dataclasses import field

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.types import Sst, Ulid


@dataclass(slots=True)
class RangeOutput:
    """The finished SSTs of one range and the attempt that may add to them.

    Args:
        ssts: in key order, earlier attempts' included.
        owner: the id of the attempt that may add; ``None`` while there is none.
        is_done: the range has all its SSTs, for good.
    """

    ssts: list[Sst] = field(default_factory=list)
    owner: int | None = None
    is_done: bool = False

    @property
    def last(self) -> Sst | None:
        """The SST after which the range goes on."""
        return self.ssts[-1] if self.ssts else None

    @property
    def last_id(self) -> Ulid | None:
        """The id of ``last``."""
        return self.ssts[-1].id if self.ssts else None

    def claim(self, attempt: int) -> bool:
        """Let an attempt begin; return whether it owns the range now.

        The attempt that was started last owns it, in whatever order they connect.  A range that is done has no owner.
        """
        if self.is_done or (self.owner is not None and attempt < self.owner):
            return False
        self.owner = attempt
        return True

    def add(self, attempt: int, position: int, ssts: Iterable[Sst]) -> bool:
        """Append finished SSTs of the owner; return ``False`` if the attempt no longer owns the range.

        Args:
            attempt: the reporting attempt.
            position: the number of SSTs before these, as the attempt counts.
            ssts: in key order.

        Raises:
            CorruptionError: the owner counts otherwise, or the keys do not ascend.
        """
        if attempt != self.owner:
            return False
        if position != len(self.ssts):
            raise CorruptionError(f"SST {position} of a range was reported after {len(self.ssts)} others")
        for sst in ssts:
            self._append(sst)
        return True

    def finish(self, attempt: int, count: int, last: Ulid | None) -> bool:
        """End the range if the attempt's count is what is recorded; return ``False`` if it no longer owns the range.

        Raises:
            CorruptionError: the owner counts otherwise.
        """
        if attempt != self.owner:
            return False
        if (count, last) != (len(self.ssts), self.last_id):
            raise CorruptionError(f"a range ended with {count} SSTs up to {last}, but {len(self.ssts)} are recorded")
        self.is_done, self.owner = True, None
        return True

    def release(self, attempt: int) -> bool:
        """Forget an attempt that is gone; return whether that leaves the range without an owner."""
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
