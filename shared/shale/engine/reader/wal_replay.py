"""The WAL replay of a reader, which tells a lost file from one that GC deleted (docs/reference/protocol.md 5.2, 5.5).

Every file up to the one before ``next_wal_sst_id`` was durable when the manifest was written, and GC keeps the files
above the replay point of the newest manifest.  So a missing file is lost if the newest manifest, read after the file
was found missing, still needs it.  Otherwise a newer manifest has its rows in L0.
"""

from bisect import bisect_right
from contextlib import aclosing
from dataclasses import replace
from weakref import WeakSet

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.memtable import Memtable
from shale.engine.reader.options import ReaderOptions
from shale.engine.reader.tables import ReplayedTables
from shale.engine.wal.replay import replay_wal
from shale.env import Env
from shale.errors import WalTruncated
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_completeness import WalGap, find_gaps, log_skipped, wal_lost, wal_truncated
from shale.protocol.wal_store import WalStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest

log = get_logger("reader")


@dataclass(frozen=True, slots=True)
class Replayed:
    """The tables after a replay.

    ``is_superseded``: files that the manifest names are gone, and a newer manifest has their rows in L0.
    """

    tables: ReplayedTables
    is_superseded: bool = False


class WalReplay:
    """Adds the rows of WAL files to the tables of one reader.

    Args:
        wal: the files.
        manifests: tell whether a missing file is still needed.
        env: CPU.
        options: the size of a table and of all, and whether lost files are left out.
        has_gaps: the WAL is written in parallel, so files may follow one that is still being written.
    """

    def __init__(
        self, wal: WalStore, manifests: ManifestStore, env: Env, options: ReaderOptions, *, has_gaps: bool = False
    ) -> None:
        self._wal = wal
        self._manifests = manifests
        self._env = env
        self._has_gaps = has_gaps
        self._left_out: set[WalGap] = set()
        self._max_table_bytes = options.max_memtable_bytes
        self._max_bytes = options.max_replayed_bytes
        self._allow_gap = options.allow_wal_gap
        self._live: WeakSet[Memtable] = WeakSet()
        self._returned: ReplayedTables | None = None

    @property
    def left_out(self) -> tuple[WalGap, ...]:
        """The lost files whose rows are missing, ascending."""
        return tuple(sorted(self._left_out, key=lambda gap: gap.first_id))

    @property
    def live_table_bytes(self) -> int:
        """The estimated memory of all tables that it returned and that a state, a snapshot or a scan still has."""
        return sum(table.size_bytes for table in self._live)

    async def to_end(self, tables: ReplayedTables, manifest: Manifest) -> Replayed:
        """Add the rows of newer WAL files, up to the end of the WAL, or until the tables are full.

        With full tables the state is an older one; a later call goes on when the writer has flushed some rows to L0.
        Tables that only older states still have count, too.

        Args:
            tables: the rows that were replayed before.
            manifest: a manifest that was read before; every file that it names must be there.

        Raises:
            WalTruncated: a file is lost; names all of them.
            InvalidDbState: there is no WAL file at all, so the WAL is in another store.
        """
        replayed = await self._to_end(tables, manifest, self._room_bytes(tables))
        self._remember(replayed.tables)
        return replayed

    async def _to_end(self, tables: ReplayedTables, manifest: Manifest, max_bytes: int | None) -> Replayed:
        known_id = manifest.next_wal_sst_id - 1
        while True:
            end_id = await self._wal.last_seen_wal_id(tables.consumed_wal_id, has_gaps=self._has_gaps)
            tables = await self._add(tables, end_id, max_bytes)
            if max_bytes is not None and tables.size_bytes >= max_bytes:
                log.info(Event.READER_REPLAY_PAUSED, size_bytes=tables.size_bytes, limit_bytes=max_bytes)
                return Replayed(tables)
            # In a parallel WAL a file after the known ones may be missing because it is still being written.
            wanted_id = known_id if self._has_gaps else max(known_id, end_id)
            if tables.consumed_wal_id >= wanted_id:
                return Replayed(tables)
            missing_id = tables.consumed_wal_id + 1
            # Read after the file was found missing: GC deletes a file after the manifest has moved on, never before.
            if (await self._manifests.read_latest()).value.replay_after_wal_id >= missing_id:
                return Replayed(tables, is_superseded=missing_id <= known_id)
            resumed = await self._after_gap(tables, manifest, wanted_id)
            if resumed is None:
                return Replayed(tables)
            tables = resumed

    async def through(self, tables: ReplayedTables, manifest: Manifest, last_id: int) -> ReplayedTables:
        """Add the rows of the WAL files up to ``last_id``, all of which a checkpoint protects.

        Raises:
            WalTruncated: a file is lost; names all of them.
            InvalidDbState: there is no WAL file at all, so the WAL is in another store.
        """
        while (tables := await self._add(tables, last_id)).consumed_wal_id < last_id:
            resumed = await self._after_gap(tables, manifest, last_id)
            if resumed is None:
                break
            tables = resumed
        self._remember(tables)
        return tables

    def _room_bytes(self, tables: ReplayedTables) -> int | None:
        """Return how large ``tables`` may become beside those that only older states have; ``None``: no limit.

        The tables that it returned last are in the state that is served now, which the next one replaces.
        """
        if self._max_bytes is None:
            return None
        served = set(self._returned.newest_first()) if self._returned is not None else set[Memtable]()
        older = set(self._live) - served - set(tables.newest_first())
        return max(0, self._max_bytes - sum(table.size_bytes for table in older))

    def _remember(self, tables: ReplayedTables) -> None:
        self._live.update(tables.newest_first())
        self._returned = tables

    async def _after_gap(self, tables: ReplayedTables, manifest: Manifest, wanted_id: int) -> ReplayedTables | None:
        """Report the files that are missing up to ``wanted_id``.

        Returns:
            the tables from which replay goes on after the first gap; ``None`` if no file follows it.
        """
        consumed_id = tables.consumed_wal_id
        listed = await self._wal.ids_after(consumed_id)
        if listed and listed[0] == consumed_id + 1:
            return tables  # it was written after the search
        gaps = find_gaps(listed, consumed_id + 1, wanted_id)
        if not listed and not await self._wal.list():
            if self._allow_gap:
                self._report(gaps)
                return None
            raise wal_truncated(self._wal, consumed_id, manifest)
        if not self._allow_gap:
            raise wal_lost(self._wal, gaps, is_end=not listed)
        self._report(gaps)
        if bisect_right(listed, gaps[0].last_id) == len(listed):
            # Whatever is written into the free slots later must be read.
            return None
        return replace(tables, consumed_wal_id=gaps[0].last_id)

    def _report(self, gaps: tuple[WalGap, ...]) -> None:
        log_skipped(self._wal, [gap for gap in gaps if gap not in self._left_out])
        self._left_out.update(gaps)

    async def _add(self, tables: ReplayedTables, last_id: int, max_bytes: int | None = None) -> ReplayedTables:
        """Add the rows of the files up to ``last_id``, up to the first missing one, or until the tables are full."""
        if max_bytes is not None and tables.size_bytes >= max_bytes:
            return tables
        replayed = replay_wal(
            self._wal,
            tables.consumed_wal_id + 1,
            last_id,
            min_seq=tables.last_seq,
            max_table_bytes=self._max_table_bytes,
            env=self._env,
        )
        try:
            async with aclosing(replayed):
                async for piece in replayed:
                    tables = tables.with_rows(piece.parts, piece.consumed_wal_id, max_table_bytes=self._max_table_bytes)
                    if max_bytes is not None and tables.size_bytes >= max_bytes:
                        return tables
        except WalTruncated:
            pass
        return tables
