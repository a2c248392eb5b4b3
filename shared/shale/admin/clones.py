"""Clones by hand (docs/clones.md)."""

from collections.abc import Sequence
from uuid import UUID

from shale.admin.place import AdminPlace
from shale.clones.clone import create_clone
from shale.clones.neighbours import Neighbours
from shale.clones.projection import SegmentFilter, SegmentRanges
from shale.clones.request import CloneRequest, CloneResult, CloneSource
from shale.protocol.checkpoint_names import checkpoint_reference
from shale.store.location import normalize_path
from shale.types import KeyRange


def source(
    path: str,
    *,
    checkpoint: UUID | str | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
) -> CloneSource:
    """A source of a clone, in the same store as the clone.

    Args:
        checkpoint: of that database, an id or a name; by default one is made of its newest state.
        start, end: the keys to take, ``end`` not among them; without both of them everything.

    Raises:
        InvalidRequestError: the path is malformed, or the checkpoint nothing that could be one.
    """
    keys = None if start is None and end is None else KeyRange.half_open(start, end)
    chosen = None if checkpoint is None else checkpoint_reference(checkpoint)
    return CloneSource(path=normalize_path(path), checkpoint=chosen, keys=keys)


class CloneAdmin:
    """Makes clones at the path of the ``Admin`` that it belongs to."""

    def __init__(self, place: AdminPlace) -> None:
        self._root = place.root
        self._neighbours = Neighbours(place.stores.main, place.env, place.metrics, place.stores.wal)

    async def create(
        self,
        *sources: str | CloneSource,
        keys: KeyRange | None = None,
        segments: SegmentFilter | None = None,
        segment_ranges: SegmentRanges | None = None,
        require_complete: bool = False,
        allow_gaps: bool = False,
        compact_union: bool = False,
    ) -> CloneResult:
        """Make a database here that begins with what the sources hold; no SST is read or copied.

        Call it again after an interruption, with the same sources: it goes on where it was.  The WAL of all of them is
        where the ``Admin`` was told that it is, and so is the clone's.

        Args:
            sources: paths in the same store, or what ``source`` makes of them.
            keys: all that is taken, from whichever source.
            segments: whether the segment with a prefix is taken.
            segment_ranges: the keys that are taken of each segment.
            require_complete: refuse a source whose WAL holds rows that the clone would lack, instead of telling.
            allow_gaps: the ranges of several sources need not be adjacent.
            compact_union: join views and runs of several sources where they fit together.

        Raises:
            InvalidRequestError: what was asked for is impossible; the subclass says why.
            LatestRecordMissing, CheckpointMissing: a source, or its checkpoint, is not there.
            AmbiguousCheckpoint: several checkpoints of a source have the name.
        """
        named = _named(sources)
        request = CloneRequest(
            path=self._root,
            sources=named,
            keys=keys,
            segments=segments,
            segment_ranges=segment_ranges,
            require_complete=require_complete,
            allow_gaps=allow_gaps,
            compact_union=compact_union,
        )
        return await create_clone(self._neighbours, request)


def _named(sources: Sequence[str | CloneSource]) -> tuple[CloneSource, ...]:
    return tuple(source(each) if isinstance(each, str) else each for each in sources)
