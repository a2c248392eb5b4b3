"""``admin.clones``: create clones (docs/how-to/clones.md)."""

from collections.abc import Sequence
from uuid import UUID

from shale.admin.context import AdminContext
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.projection import SegmentFilter, SegmentRanges
from shale.clones.request import CloneRequest, CloneResult, CloneSource
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.store.location import UrlOrPath, normalize_path
from shale.types import KeyRange


def source(
    path: UrlOrPath,
    *,
    checkpoint: UUID | str | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
) -> CloneSource:
    """Return a source of a clone, in the same store as the clone.

    Args:
        path: the path of that database in the store.
        checkpoint: id or name of a checkpoint of that database; by default a new one of its newest state.
        start, end: the keys to take, ``end`` excluded; ``None``: unbounded.

    Raises:
        InvalidRequestError: the path or the checkpoint is malformed.
    """
    keys = None if start is None and end is None else KeyRange.half_open(start, end)
    chosen = None if checkpoint is None else require_checkpoint_reference(checkpoint)
    return CloneSource(path=normalize_path(path), checkpoint=chosen, keys=keys)


class CloneAdmin:
    """Creates clones at the path of its ``Admin``."""

    def __init__(self, place: AdminContext, transformer: BlockTransformer | None = None) -> None:
        self._root = place.root
        stores = place.stores
        self._catalog = DatabaseCatalog(
            stores.main, place.env, place.metrics, stores.wal, transformer, stores.manifest_write_version
        )

    async def create(
        self,
        *sources: UrlOrPath | CloneSource,
        keys: KeyRange | None = None,
        segments: SegmentFilter | None = None,
        segment_ranges: SegmentRanges | None = None,
        allow_wal_gap: bool = False,
        allow_gaps: bool = False,
        compact_union: bool = False,
    ) -> CloneResult:
        """Create a database with the rows of the sources; no SST is read or copied.

        After an interruption, call it again with the same sources: it continues.  The WALs of all sources and of the
        clone are in the WAL store of the ``Admin``.

        Args:
            sources: paths in the same store, or results of ``source``.
            keys: the keys to take from all sources; ``None``: all.
            segments: returns whether to take the segment with a prefix.
            segment_ranges: returns the keys to take of a segment.
            allow_wal_gap: clone a source although its WAL has durable rows that the clone will lack; otherwise that is
                an error.
            allow_gaps: the key ranges of the sources need not be adjacent.
            compact_union: merge views of one SST, and runs of similar size, of several sources.

        Raises:
            InvalidRequestError: the request is invalid; the subclass says why.
            LatestRecordMissing, CheckpointMissing: a source or its checkpoint does not exist.
            InvalidDbState: a source is incomplete, or has rows that the clone would lack.
            AmbiguousCheckpoint: several checkpoints of a source have the name.
        """
        named = _named(sources)
        request = CloneRequest(
            path=self._root,
            sources=named,
            keys=keys,
            segments=segments,
            segment_ranges=segment_ranges,
            allow_wal_gap=allow_wal_gap,
            allow_gaps=allow_gaps,
            compact_union=compact_union,
        )
        return await create_clone(self._catalog, request)


def _named(sources: Sequence[UrlOrPath | CloneSource]) -> tuple[CloneSource, ...]:
    return tuple(each if isinstance(each, CloneSource) else source(each) for each in sources)
