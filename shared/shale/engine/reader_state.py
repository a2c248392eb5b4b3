"""What a reader serves at one time, and how it comes about: a manifest, replayed tables, and a view of both."""

from dataclasses import dataclass

from shale.engine.memtable import Memtable
from shale.engine.pin import Pin
from shale.engine.read_options import ReadOptions
from shale.engine.read_point import Keeper, ReadPoint
from shale.engine.read_view import ReadView
from shale.engine.reader_tables import Tables
from shale.engine.replay import replay_wal
from shale.env import Env
from shale.errors import WalTruncated
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.protocol.wal_place import require_known_files
from shale.protocol.wal_store import WalStore
from shale.sst.reader import SstReader
from shale.types import Manifest


@dataclass(frozen=True, slots=True)
class ReaderState:
    """Never changed; a poll makes a new one."""

    manifest: Versioned[Manifest]
    tables: Tables
    point: ReadPoint

    @property
    def view(self) -> ReadView:
        """What reads see."""
        return self.point.view

    @property
    def pin(self) -> Pin:
        """What protects the SSTs of this state."""
        return self.view.pin

    @property
    def visible_seq(self) -> int:
        """The newest sequence number that reads can see; all of it is durable."""
        return max(self.tables.last_seq, self.manifest.value.last_l0_seq)


class StateBuilder:
    """Makes states: replays the WAL and puts views together."""

    def __init__(
        self,
        wal: WalStore,
        reader: SstReader,
        env: Env,
        options: ReadOptions,
        *,
        max_table_bytes: int,
        keeper: Keeper | None = None,
    ) -> None:
        self._wal = wal
        self._keeper = keeper
        self._reader = reader
        self._env = env
        self._options = options
        self._max_table_bytes = max_table_bytes

    def build(
        self, manifest: Versioned[Manifest], tables: Tables, pin: Pin, previous: ReaderState | None
    ) -> ReaderState:
        """A state of what is at hand; makes no request."""
        view = ReadView(
            manifest.value,
            tables.newest_first(),
            self._reader,
            self._options,
            pin=pin,
            previous=previous.view if previous is not None else None,
        )
        return ReaderState(manifest, tables, ReadPoint(view, None, self._keeper))

    async def replay(self, tables: Tables) -> Tables:
        """Add what the WAL holds beyond ``tables``, up to its end, or up to the first file that is gone.

        A file beyond the reader's manifest is protected by its age only (docs/protocol.md 5.5), so a missing one is
        no error: what follows it comes with a later manifest.
        """
        last_id = await self._wal.last_seen_wal_id(tables.consumed_wal_id)
        return await self._replay_to(tables, last_id, must_exist=False)

    async def require_known_files(self, manifests: ManifestStore, manifest: Manifest, tables: Tables) -> None:
        """Return unless the very first file behind this manifest is missing from the log, and nobody collected it.

        A reader serves what comes before a later gap, as SlateDB does; without a beginning it is in the wrong place.

        Raises:
            InvalidDbState: names the file, and what is probably wrong.
        """
        if tables.consumed_wal_id == manifest.replay_after_wal_id:
            await require_known_files(self._wal, manifests, manifest, tables.consumed_wal_id)

    async def replay_exactly(self, tables: Tables, last_id: int) -> Tables:
        """Add the files up to ``last_id``, which a checkpoint protects.

        Raises:
            WalTruncated: one is missing all the same.
        """
        return await self._replay_to(tables, last_id, must_exist=True)

    async def _replay_to(self, tables: Tables, last_id: int, *, must_exist: bool) -> Tables:
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
                table = Memtable.from_parts(piece.parts)
                tables = tables.with_newer(table, piece.consumed_wal_id, max_table_bytes=self._max_table_bytes)
        except WalTruncated:
            if must_exist:
                raise
        return tables
