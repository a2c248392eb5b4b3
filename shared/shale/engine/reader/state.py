"""The state of a reader: a manifest, the tables replayed from the WAL, and the super version of both."""

from collections.abc import Awaitable, Callable, Mapping

from shale.core.lazy_dataclass import dataclass
from shale.core.units import format_size
from shale.engine.location import DatabaseLocation
from shale.engine.read.pins import Pin
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.read_point import ReadPoint, ViewProvider, names_sst
from shale.engine.read.super_version import SuperVersion
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.engine.reader.tables import ReplayedTables
from shale.engine.status_updates import StatusUpdate
from shale.engine.wal.replay import replay_wal
from shale.env import Env
from shale.errors import ClosedError, InvalidDbState, SegmentExtractorMismatch, ShaleError, SstMissing, WalTruncated
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.protocol.wal_completeness import require_complete_wal, require_wal_store
from shale.protocol.wal_store import WalStore
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
    """Builds states: replays the WAL and combines tables and manifest."""

    def __init__(
        self,
        wal: WalStore,
        reader: SstReader,
        env: Env,
        options: ReadOptions,
        *,
        max_table_bytes: int,
        wal_has_gaps: bool = False,
        view_provider: ViewProvider | None = None,
    ) -> None:
        self._wal = wal
        self._wal_has_gaps = wal_has_gaps
        self._view_provider = view_provider
        self._reader = reader
        self._env = env
        self._options = options
        self._max_table_bytes = max_table_bytes

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

    async def replay(self, tables: ReplayedTables) -> ReplayedTables:
        """Add the rows of newer WAL files, up to the end of the WAL or the first missing file.

        Only its age protects a file newer than the reader's manifest (docs/reference/protocol.md 5.5).  So a missing
        file is no error: a later manifest has its rows.
        """
        last_id = await self._wal.last_seen_wal_id(tables.consumed_wal_id, has_gaps=self._wal_has_gaps)
        return await self.replay_to(tables, last_id, must_exist=False)

    async def require_complete_wal(self, manifests: ManifestStore, manifest: Manifest, tables: ReplayedTables) -> None:
        """Check that the first WAL file after this manifest exists, or that GC deleted it.

        A reader serves the rows before a later gap, as SlateDB does.  Without the first file it reads the wrong store.

        Raises:
            InvalidDbState: names the file and the probable cause.
        """
        if tables.consumed_wal_id == manifest.replay_after_wal_id:
            await require_complete_wal(self._wal, manifests, manifest, tables.consumed_wal_id)

    async def replay_to(self, tables: ReplayedTables, last_id: int, *, must_exist: bool) -> ReplayedTables:
        """Add the rows of the WAL files up to ``last_id``, or up to the first missing file.

        Args:
            must_exist: a missing file is an error: a checkpoint protects these files.

        Raises:
            WalTruncated: one of them is missing.
        """
        replayed = replay_wal(
            self._wal,
            tables.consumed_wal_id + 1,
            last_id,
            min_seq=tables.last_seq,
            max_table_bytes=self._max_table_bytes,
            env=self._env,
        )
        try:
            async for piece in replayed:
                tables = tables.with_rows(piece.parts, piece.consumed_wal_id, max_table_bytes=self._max_table_bytes)
        except WalTruncated:
            if must_exist:
                raise
        return tables


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


def reader_state(
    place: str, mode: ReaderMode, state: ReaderState | None, problem: ShaleError | None
) -> Mapping[str, object]:
    """Return what ``repr`` of a ``DbReader`` shows, from memory; ``state`` is ``None`` while it is opened."""
    shown = "open" if problem is None else "closed" if isinstance(problem, ClosedError) else f"failed: {problem}"
    known: dict[str, object] = {"database": place, "state": shown, "mode": mode.value}
    if state is not None:
        known |= {"manifest": int(state.manifest.id), "visible_seq": state.visible_seq}
        known |= {"checkpoint": str(state.pin.checkpoint_id), "replayed": format_size(state.tables.size_bytes)}
    return known
