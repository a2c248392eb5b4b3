"""The options of reads, and the interface of the tables they search in memory."""

from collections.abc import Sequence
from typing import Protocol

from shale.concurrency.read_ahead import READ_AHEAD_BYTES, ReadAhead
from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.sorted_part import SortedPart
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows
from shale.types import Entry, KeyRange


class ReadTable(Protocol):
    """Rows in memory, as reads see them; a memtable is one."""

    def __len__(self) -> int:
        """Return the number of rows of all versions."""
        ...

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:
        """Return versions of a key up to ``max_seq``, newest first, at least down to the first that is no operand."""
        ...

    def sorted_parts(self) -> list[SortedPart]:
        """Return all rows as sorted parts, without later writes; no (key, seq) occurs twice."""
        ...


def table_rows(table: ReadTable, key_range: KeyRange | None = None) -> list[Rows]:
    """Return the rows of a table in a range as sorted columns, which share its buffers."""
    slices = [part.slice(key_range) for part in table.sorted_parts()]
    return [rows for rows in slices if len(rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options that all super versions of one handle share.

    ``read_ahead`` is ``None`` without a task group; scans then read without prefetch.
    """

    merge_operator: MergeOperator | None = None
    read_ahead_bytes: int = READ_AHEAD_BYTES
    read_ahead: ReadAhead | None = None
