"""What reading needs to know beyond a manifest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shale.engine.hot_path import HotPath
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows
from shale.sst.read_ahead import ReadAhead
from shale.sst.source import READ_AHEAD_BYTES
from shale.types import Entry, KeyRange


class ReadTable(Protocol):
    """Rows in memory, as reads see them; memtables are such tables."""

    def __len__(self) -> int:
        """Rows of all versions."""
        ...

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:
        """Versions of a key up to ``max_seq``, newest first, at least down to the first that is no merge operand."""
        ...

    def parts(self, key_range: KeyRange | None = None) -> list[Rows]:
        """The rows in a range as sorted columns; later writes do not show in them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Shared by all views of one handle.

    ``read_ahead`` is ``None`` where nobody owns a task group; scans then read without prefetch.
    """

    merge_operator: MergeOperator | None = None
    read_ahead_bytes: int = READ_AHEAD_BYTES
    read_ahead: ReadAhead | None = None
    hot_path: HotPath = field(default_factory=HotPath)
