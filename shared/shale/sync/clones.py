"""``shale.sync.Admin().clones``: clones, whose calls block."""

from shale.admin.clones import CloneAdmin
from shale.clones.projection import SegmentFilter, SegmentRanges
from shale.clones.request import CloneResult, CloneSource
from shale.sync.background import Background
from shale.types import KeyRange


class Clones:
    """See ``shale.admin.clones.CloneAdmin``."""

    def __init__(self, inner: CloneAdmin, background: Background) -> None:
        self._inner = inner
        self._background = background

    def create(
        self,
        *sources: str | CloneSource,
        keys: KeyRange | None = None,
        segments: SegmentFilter | None = None,
        segment_ranges: SegmentRanges | None = None,
        require_complete: bool = False,
        allow_gaps: bool = False,
        compact_union: bool = False,
    ) -> CloneResult:
        """Make the database a clone of others, or go on with one that was begun."""
        creating = self._inner.create(
            *sources,
            keys=keys,
            segments=segments,
            segment_ranges=segment_ranges,
            require_complete=require_complete,
            allow_gaps=allow_gaps,
            compact_union=compact_union,
        )
        return self._background.call(creating)
