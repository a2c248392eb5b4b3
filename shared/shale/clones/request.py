"""Request and result of a clone (docs/reference/protocol.md 10.1)."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from shale.clones.projection import SegmentFilter, SegmentRanges
from shale.core.lazy_dataclass import dataclass
from shale.errors import DuplicatedCloneSourcePath, IdenticalClonePaths, InvalidRequestError, InvalidUnionSetEmpty
from shale.types import KeyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSource:
    """A database that a clone is made of.

    Args:
        path: normalized path in the same store as the clone.
        checkpoint: id or name of a checkpoint of that database; by default one is created of the newest manifest,
            which does not include rows that are only in the WAL.
        keys: the keys to take from it; ``None``: all.
    """

    path: str
    checkpoint: UUID | str | None = None
    keys: KeyRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """A clone of one database, or of several whose keys do not overlap.

    Args:
        path: path of the clone.
        keys: the keys to take from all sources; ``None``: all.
        segments, segment_ranges: see ``shale.clones.projection``.
        allow_wal_gap: clone a source although its WAL has durable rows that the clone will lack.
        allow_gaps: the requested key ranges of the sources need not be adjacent.
        compact_union: merge views of one SST, and runs of similar size, of several sources.
    """

    path: str
    sources: Sequence[CloneSource]
    keys: KeyRange | None = None
    segments: SegmentFilter | None = None
    segment_ranges: SegmentRanges | None = None
    allow_wal_gap: bool = False
    allow_gaps: bool = False
    compact_union: bool = False

    @property
    def is_union(self) -> bool:
        """Whether there is more than one source."""
        return len(self.sources) > 1

    def keys_of(self, source: CloneSource) -> KeyRange | None:
        """Return the keys to take from one source: the intersection of its own range and the common one."""
        if source.keys is None or self.keys is None:
            return source.keys if self.keys is None else self.keys
        return source.keys.intersect(self.keys)

    def projects(self, source: CloneSource) -> bool:
        """Return whether only a part of a source is taken."""
        return self.keys_of(source) is not None or self.segments is not None or self.segment_ranges is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneResult:
    """A finished clone.

    Args:
        manifest_id: id of the clone's newest manifest.
        is_new: this call completed the clone; otherwise it existed, and nothing was written.
        checkpoints: the source checkpoint of each source; ``None`` for a union's source without own SSTs.
        wal_files_copied: WAL files of the source that are in the clone, fences included.
        wal_files_left_out: WAL files with rows that the source's manifest does not know.
    """

    path: str
    manifest_id: int
    is_new: bool
    checkpoints: tuple[UUID | None, ...] = ()
    wal_files_copied: int = 0
    wal_files_left_out: int = 0


def check_request(request: CloneRequest) -> None:
    """Check the paths and ranges of a request.

    Raises:
        InvalidUnionSetEmpty: there is no source.
        DuplicatedCloneSourcePath: a source is given twice.
        IdenticalClonePaths: the clone has the path of a source, or one path is inside the other, where deleting the
            outer database would delete both.
        InvalidRequestError: a key range is empty.
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
    """Return whether a path equals the other one or is below it."""
    return path == outer or not outer or path.startswith(f"{outer}/")
