"""What the merging loop keeps, said once for its kernel and its plain twin."""

from collections.abc import Callable
from typing import TypeAlias

from shale.core.lazy_dataclass import dataclass

OnExpired: TypeAlias = Callable[[int, int], None]
"""Told how many more values, and how many more operands, had expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """Which rows of a merged stream survive.

    ``max_seq``: newer rows are as if they did not exist.  ``newest_only``: per key the newest row is kept, and older
    ones while the row before has ``seq > min_seq`` or is a merge operand; otherwise every row is kept.
    ``now_tick``: values that expired by then become tombstones, operands vanish.  ``drop_tombstones``: the tombstones
    at the old end of a key's kept rows go (docs/reference/protocol.md 7.2).
    """

    newest_only: bool = False
    max_seq: int | None = None
    min_seq: int | None = None
    now_tick: int | None = None
    drop_tombstones: bool = False


KEEP_ALL = MergeRules()
