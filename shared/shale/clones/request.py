"""What a clone is asked to be, and what came of it (docs/protocol.md 10.1)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from shale.clones.projection import SegmentFilter, SegmentRanges
from shale.errors import DuplicatedCloneSourcePath, IdenticalClonePaths, InvalidRequestError, InvalidUnionSetEmpty
from shale.types import KeyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSource:
    """A database that a clone is made of.

    Args:
        path: in the same store as the clone, normalised.
        checkpoint: of that database, an id or a name; by default one is made of its newest state, which the WAL may be
            ahead of.
        keys: all that is taken from it.
    """

    path: str
    checkpoint: UUID | str | None = None
    keys: KeyRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """A clone of one database, or of several whose keys do not overlap.

    Args:
        path: where the clone is going to be.
        keys: all that is taken, from whichever source.
        segments, segment_ranges: see ``shale.clones.projection``.
        require_complete: refuse sources whose WAL holds rows that the clone would lack.
        allow_gaps: the ranges of the sources, if all of them have one, need not be adjacent.
        compact_union: join views and runs of several sources where they fit together.
    """

    path: str
    sources: Sequence[CloneSource]
    keys: KeyRange | None = None
    segments: SegmentFilter | None = None
    segment_ranges: SegmentRanges | None = None
    require_complete: bool = False
    allow_gaps: bool = False
    compact_union: bool = False

    @property
    def is_union(self) -> bool:
        """Whether there are several sources."""
        return len(self.sources) > 1

    def keys_of(self, source: CloneSource) -> KeyRange | None:
        """What is taken from one source: a range that is empty if its own and the common one do not meet."""
        if source.keys is None or self.keys is None:
            return source.keys if self.keys is None else self.keys
        return source.keys.intersect(self.keys)

    def projects(self, source: CloneSource) -> bool:
        """Whether less than everything is taken from a source."""
        return self.keys_of(source) is not None or self.segments is not None or self.segment_ranges is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneResult:
    """A finished clone.

    Args:
        manifest_id: its newest version.
        is_new: this call has finished it; otherwise it was there already, and nothing was written.
        checkpoints: of each source, as the clone names it; ``None`` for one of several that gave no SST of its own.
        wal_files_copied: files of the source's log that are in the clone's, fences included.
        wal_files_left_out: files with rows that no manifest of a source knew of.
    """

    path: str
    manifest_id: int
    is_new: bool
    checkpoints: tuple[UUID | None, ...] = ()
    wal_files_copied: int = 0
    wal_files_left_out: int = 0


def check_request(request: CloneRequest) -> None:
    """Return if the paths can be those of a clone and its sources.

    Raises:
        InvalidUnionSetEmpty: there is no source.
        DuplicatedCloneSourcePath: one is named twice.
        IdenticalClonePaths: the clone is at the path of a source, or one of them inside the other, where deleting the
            outer database would delete both.
        InvalidRequestError: a range holds no key, as one whose ends were exchanged.
    """
    if not request.sources:
        raise InvalidUnionSetEmpty("a clone needs at least one source")
    twice = [path for path, count in Counter(source.path for source in request.sources).items() if count > 1]
    if twice:
        raise DuplicatedCloneSourcePath(f"{twice[0]} is named twice as a source")
    for keys in (request.keys, *(source.keys for source in request.sources)):
        if keys is not None and keys.is_empty:
            raise InvalidRequestError(f"there is no key in the range {keys.first_key!r}..{keys.end_key!r}")
    for source in request.sources:
        if is_inside(source.path, request.path) or is_inside(request.path, source.path):
            raise IdenticalClonePaths(
                f"{request.path or '/'} and its source {source.path or '/'} are the same place, or one is in the other"
            )


def is_inside(path: str, outer: str) -> bool:
    """Whether a path is the other one or lies below it."""
    return path == outer or not outer or path.startswith(f"{outer}/")
