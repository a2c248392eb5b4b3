"""The state of a reader: a manifest, the tables replayed from the WAL, and the super version of both."""

from collections.abc import Awaitable, Callable

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.engine.read.pins import Pin
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.read_point import ReadPoint, ViewProvider, names_sst
from shale.engine.read.super_version import SuperVersion
from shale.engine.reader.options import ReaderOptions
from shale.engine.reader.tables import ReplayedTables
from shale.engine.status_updates import StatusUpdate
from shale.errors import InvalidDbState, SegmentExtractorMismatch, ShaleError, SstMissing
from shale.protocol.versioned import Versioned
from shale.protocol.wal_completeness import require_wal_store
from shale.sst.reader import SstReader
from shale.store.location import require_in_store
from shale.types import Manifest


@dataclass(frozen=True, slots=True)
class ReaderState:
    """One state; it never changes, and a poll makes a new one."""

    manifest: Versioned[Manifest]
    tables: ReplayedTables
    point: ReadPoint

    @property
    def view(self) -> SuperVersion:
        """The super version that reads see."""
        return self.point.view

    @property
    def pin(self) -> Pin:
        """The pin that protects the SSTs of this state."""
        return self.view.pin

    @property
    def visible_seq(self) -> int:
        """The newest visible sequence number; everything up to it is durable."""
        return max(self.tables.last_seq, self.manifest.value.last_l0_seq)

    def status(self, problem: ShaleError | None) -> StatusUpdate:
        """Return this state as subscribers see it; ``problem`` is the error that stopped the reader."""
        manifest = self.manifest.value
        segments = tuple(segment.prefix for segment in manifest.segments)
        return StatusUpdate(self.visible_seq, self.manifest.id, manifest, segments, problem)


class ReaderStateBuilder:
    """Builds states: combines the tables that were replayed from the WAL with a manifest."""

    def __init__(
        self,
        reader: SstReader,
        options: ReadOptions,
        *,
        view_provider: ViewProvider | None = None,
    ) -> None:
        self._view_provider = view_provider
        self._reader = reader
        self._options = options

    def build(
        self, manifest: Versioned[Manifest], tables: ReplayedTables, pin: Pin, previous: ReaderState | None
    ) -> ReaderState:
        """Return a state of these parts; make no request."""
        view = SuperVersion(
            manifest.value,
            tables.newest_first(),
            self._reader,
            self._options,
            pin=pin,
            previous=previous.view if previous is not None else None,
        )
        return ReaderState(manifest, tables, ReadPoint(view, None, self._view_provider))


class LatestViewProvider:
    """The ``ViewProvider`` of a reader that follows without protection: it refreshes when an SST is missing.

    Args:
        state: returns the current state.
        refresh: reads the newest manifest and serves it.
    """

    def __init__(self, state: Callable[[], ReaderState], refresh: Callable[[], Awaitable[None]]) -> None:
        self._state = state
        self._refresh = refresh

    def hold(self, seq: int) -> None:
        """Return ``None``: a reader cannot keep old versions."""

    def newest_view(self) -> SuperVersion:
        """Return the super version of the newest manifest."""
        return self._state().view

    async def on_sst_missing(self, gone: SstMissing) -> None:
        """Read the newest manifest, if the current one names the SST.

        Raises:
            SstMissing: the newest manifest still names it.
        """
        if names_sst(self._state().manifest.value, gone.id):
            await self._refresh()
            if names_sst(self._state().manifest.value, gone.id):
                raise gone


def require_readable(manifest: Manifest, location: DatabaseLocation, store_url: str, options: ReaderOptions) -> None:
    """Check that a database can be opened with these options.

    Raises:
        InvalidDbState: it is not initialised, or its WAL is in another store.
        InvalidRequestError: it is a clone, and the database whose SSTs it uses is in the store of a directory above.
        SegmentExtractorMismatch: it is segmented by another extractor.
    """
    root = location.root
    if not manifest.initialized:
        raise InvalidDbState(f"the database at {root or '/'} is not initialised: a clone that was not completed")
    require_in_store(store_url, root, (each.path for each in manifest.external_dbs))
    if not options.skip_wal_replay:
        require_wal_store(manifest, root, location.wal_store)
    extractor = options.segment_extractor
    if extractor is not None and extractor.name != manifest.segment_extractor_name:
        raise SegmentExtractorMismatch(
            f"the database at {root or '/'} is segmented by {manifest.segment_extractor_name!r}, not {extractor.name!r}"
        )
