"""Opening, polling and closing a reader in each of its three modes (docs/reference/protocol.md 5.2 to 5.4)."""

from typing import TYPE_CHECKING, Final

import anyio

from shale.engine.read.pins import Pin
from shale.engine.reader.lease import needs_renewal, renew_checkpoints, replace_checkpoints, update_expiry
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.engine.reader.state import ReaderState, ReaderStateBuilder
from shale.engine.reader.tables import ReplayedTables, needs_new_state
from shale.engine.reader.wal_replay import WalReplay
from shale.env import Env
from shale.errors import (
    AccessDenied,
    CheckpointMissing,
    InvalidDbState,
    ManifestMissing,
    ShaleError,
    UnavailableError,
    WalTruncated,
)
from shale.protocol.checkpoints import release_checkpoints, resolve_checkpoint
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest

if TYPE_CHECKING:
    from uuid import UUID

_CLOSE_LIMIT_S: Final = 10.0
_ATTEMPTS_MAX: Final = 8
_TOO_FAST: Final = "the database is flushed, and its WAL collected, faster than its newest state can be read"
_READ_ONLY_HINT: Final = "a reader writes a checkpoint of its state: permit that, or open with follow_latest=True"
log = get_logger("reader")


class Follower:
    """Owns the state and the checkpoints of a reader.  Polls run one at a time; reads go on meanwhile."""

    def __init__(
        self,
        manifests: ManifestStore,
        stored: StoredManifest,
        builder: ReaderStateBuilder,
        wal: WalReplay,
        options: ReaderOptions,
        *,
        env: Env,
        metrics: Metrics,
    ) -> None:
        self._manifests = manifests
        self._stored = stored
        self._builder = builder
        self._wal = wal
        self._env = env
        self._options = options
        self._state: ReaderState | None = None
        self._retired: list[Pin] = []
        self._created_ids: set[UUID] = set()
        self._commit_finished = anyio.Event()
        self._commit_finished.set()
        self._lost = metrics.counter("slatedb_reader_lease_lost_total")
        self._reestablished = metrics.counter("slatedb_reader_reestablish_total")

    @property
    def state(self) -> ReaderState:
        """The current state."""
        assert self._state is not None, "not open"
        return self._state

    @property
    def is_open(self) -> bool:
        """Whether there is a state to read."""
        return self._state is not None

    @property
    def replayed_bytes(self) -> int:
        """The estimated memory of the rows replayed from the WAL, with those that only older states still have."""
        return self._wal.live_table_bytes

    @property
    def expire_ms(self) -> int | None:
        """When the lease expires, in milliseconds since 1970; ``None`` without a lease, and if it never does."""
        if not self.is_open or self._options.mode is not ReaderMode.MANAGED or not self.state.pin.expire_s:
            return None
        return self.state.pin.expire_s * 1000

    async def protected_state(self) -> ReaderState:
        """Return the current state, after any commit that removes its checkpoint has ended."""
        while self.state.pin.is_closing:
            await self._commit_finished.wait()
        return self.state

    async def open(self, through_wal_id: int | None = None) -> None:
        """Establish the first state.

        Args:
            through_wal_id: at a checkpoint, also replay the WAL files after it, up to this one.

        Raises:
            AccessDenied: a checkpoint is to be created, and the store permits no writes.
            CheckpointMissing: the checkpoint is not listed, or has expired.
            AmbiguousCheckpoint: several checkpoints have the name.
            ManifestMissing: the checkpoint's version is gone.
            WalTruncated: a WAL file that replay needs is lost; names all such files.
            InvalidDbState: there is no WAL file at all, so the WAL is in another store.
            UnavailableError: the database is flushed faster than its newest state can be read.
        """
        match self._options.mode:
            case ReaderMode.MANAGED:
                try:
                    await self._replace()
                except AccessDenied as error:
                    raise AccessDenied(f"{error}; {_READ_ONLY_HINT}") from error
            case ReaderMode.CHECKPOINT:
                await self._open_checkpoint(through_wal_id)
            case ReaderMode.FOLLOW_LATEST:
                await self._serve_latest(self._stored.current, Pin())

    async def poll(self, *, destroyed: bool = False) -> None:
        """Move to the newest state.  A reader at a checkpoint does nothing.

        Args:
            destroyed: the database is marked as destroyed, so the lease is not renewed.

        Raises:
            InvalidDbState: the database is destroyed and the lease has expired.
            WalTruncated: a WAL file that replay needs is lost.
        """
        mode = self._options.mode
        if mode is ReaderMode.CHECKPOINT:
            return
        latest = await self._stored.refresh()
        if mode is ReaderMode.FOLLOW_LATEST:
            if latest.id > self.state.manifest.id or not await self._replay_newer(latest.value):
                await self._serve_latest(latest, self.state.pin)
            return
        if destroyed:
            await self._poll_destroyed(latest.value)
            return
        self._forget_lost(update_expiry(latest.value, self._retired))
        if update_expiry(latest.value, [self.state.pin]):
            await self._reestablish()
        elif needs_new_state(self.state.manifest.value, latest.value) or not await self._replay_newer(latest.value):
            await self._replace()
        await self._renew()

    def fail(self, error: ShaleError) -> None:
        """Make every read fail."""
        for pin in [*self._retired, *([self._state.pin] if self._state is not None else [])]:
            pin.fail(error)
            pin.is_closing = False
        self._commit_finished.set()

    async def close(self, error: ShaleError) -> None:
        """Make every read fail and remove every checkpoint of this reader, also one of an interrupted commit.

        Give up after some seconds; the checkpoints then expire.
        """
        self.fail(error)
        if not self._created_ids:
            return
        with anyio.move_on_after(_CLOSE_LIMIT_S, shield=True):
            await release_checkpoints(self._stored, self._created_ids)
            self._created_ids.clear()

    async def _open_checkpoint(self, through_wal_id: int | None) -> None:
        wanted = self._options.checkpoint
        assert wanted is not None
        entry = resolve_checkpoint(self._stored.value, wanted, self._env.clock.now_ms())
        manifest = await self._read(entry.manifest_id)
        tables = ReplayedTables.empty_of(manifest.value)
        if not self._options.skip_wal_replay:
            last_id = max(manifest.value.next_wal_sst_id - 1, through_wal_id or 0)
            try:
                tables = await self._wal.through(tables, manifest.value, last_id)
            except WalTruncated:
                # ``CheckpointMissing`` says more, if the checkpoint was deleted meanwhile.
                await self._stored.refresh()
                resolve_checkpoint(self._stored.value, entry.id, self._env.clock.now_ms())
                raise
        self._state = self._builder.build(manifest, tables, Pin(entry.id), None)

    async def _replace(self) -> None:
        """Replace the checkpoint by one of the newest state, and serve that state.

        Raises:
            UnavailableError: every new state had lost its checkpoint before its WAL was read.
        """
        for _ in range(_ATTEMPTS_MAX):
            if await self._try_replace():
                return
        raise UnavailableError(_TOO_FAST)

    async def _try_replace(self) -> bool:
        old = self._state.pin if self._state is not None else None
        candidates = [*self._retired, *([old] if old is not None else [])]
        new_id = self._env.ids.uuid()
        self._created_ids.add(new_id)
        dropped: list[Pin] = []

        def change(current: Versioned[Manifest]) -> Manifest | None:
            # Decided again in each attempt; a pin once marked as closing gets no new readers.
            dropped[:] = [pin for pin in candidates if pin.is_closing or not self._must_keep(pin)]
            for pin in dropped:
                pin.is_closing = True
            return replace_checkpoints(
                current.value,
                current.id + 1,
                new_id=new_id,
                kept=[pin for pin in candidates if pin not in dropped],
                dropped=dropped,
                now_ms=self._env.clock.now_ms(),
                lifetime_ms=self._options.lifetime_ms,
            )

        self._commit_finished = anyio.Event()
        try:
            committed = await self._stored.apply(change)
            entry = committed.value.checkpoint(new_id)
            if entry is None:
                raise CheckpointMissing(new_id)
            pinned = committed if committed.id == entry.manifest_id else await self._read(entry.manifest_id)
            self._retired = [pin for pin in candidates if pin not in dropped]
            self._forget_lost(update_expiry(committed.value, self._retired))
            self._created_ids -= {pin.checkpoint_id for pin in dropped if pin.checkpoint_id is not None}
            pin = Pin(new_id, entry.expire_s)
            if await self._serve(pinned, pin):
                return True
            self._retired.append(pin)
            return False
        finally:
            for pin in dropped:
                pin.is_closing = False
            self._commit_finished.set()

    def _must_keep(self, pin: Pin) -> bool:
        return pin.is_referenced and self._options.defer_checkpoint_release

    async def _reestablish(self) -> None:
        """Restart from the newest state: GC removed the checkpoint while this reader could not renew it."""
        lost = self.state.pin
        self._lost.inc()
        await self._replace()
        assert lost.checkpoint_id is not None
        lost.fail(CheckpointMissing(lost.checkpoint_id))
        self._reestablished.inc()
        log.warning(
            Event.READER_CHECKPOINT_REESTABLISHED,
            checkpoint_id=str(self.state.pin.checkpoint_id),
            expire_s=self.state.pin.expire_s,
        )

    def _forget_lost(self, lost: list[Pin]) -> None:
        """Make scans of old states fail whose checkpoints are gone."""
        for pin in lost:
            assert pin.checkpoint_id is not None
            pin.fail(CheckpointMissing(pin.checkpoint_id))
            self._created_ids.discard(pin.checkpoint_id)
        self._retired = [pin for pin in self._retired if pin not in lost]

    async def _renew(self) -> None:
        """After half of a lifetime, renew the checkpoints that reads need and drop the others."""
        used = [pin for pin in self._retired if pin.is_referenced]
        unused = [pin for pin in self._retired if not pin.is_referenced]
        kept = [self.state.pin, *used]
        if not needs_renewal(kept, self._env.clock.now_ms(), self._options.lifetime_ms):
            return

        def change(current: Versioned[Manifest]) -> Manifest | None:
            return renew_checkpoints(
                current.value,
                kept=kept,
                dropped=unused,
                now_ms=self._env.clock.now_ms(),
                lifetime_ms=self._options.lifetime_ms,
            )

        committed = await self._stored.apply(change)
        self._retired = used
        self._created_ids -= {pin.checkpoint_id for pin in unused if pin.checkpoint_id is not None}
        self._forget_lost(update_expiry(committed.value, used))
        if update_expiry(committed.value, [self.state.pin]):
            await self._reestablish()
            return
        log.info(
            Event.READER_CHECKPOINT_REFRESHED,
            checkpoint_id=str(self.state.pin.checkpoint_id),
            expire_s=self.state.pin.expire_s,
        )

    async def _poll_destroyed(self, latest: Manifest) -> None:
        expire_ms = self.expire_ms
        if expire_ms is not None and self._env.clock.now_ms() >= expire_ms:
            raise InvalidDbState("the database is destroyed and the lease of this reader has expired")
        await self._replay_newer(latest)

    async def _serve_latest(self, latest: Versioned[Manifest], pin: Pin) -> None:
        """Serve the newest manifest without protection: GC may delete its WAL files before they are read.

        Raises:
            UnavailableError: that happened with every manifest.
        """
        for _ in range(_ATTEMPTS_MAX):
            if await self._serve(latest, pin):
                return
            latest = await self._stored.refresh()
        raise UnavailableError(_TOO_FAST)

    async def _serve(self, manifest: Versioned[Manifest], pin: Pin) -> bool:
        """Serve a manifest with the tables replayed so far and the newer WAL files.

        Returns:
            whether the manifest is served; if not, a newer one has moved on, and files that this one needs are gone.
        """
        previous = self._state
        tables = ReplayedTables.empty_of(manifest.value) if previous is None else previous.tables.above(manifest.value)
        if not self._options.skip_wal_replay:
            replayed = await self._wal.to_end(tables, manifest.value)
            if replayed.is_superseded:
                return False
            tables = replayed.tables
        self._state = self._builder.build(manifest, tables, pin, previous)
        return True

    async def _replay_newer(self, latest: Manifest) -> bool:
        """Serve the WAL files written since the last poll; return whether the served manifest still suffices."""
        if self._options.skip_wal_replay:
            return True
        state = self.state
        replayed = await self._wal.to_end(state.tables, latest)
        if replayed.tables != state.tables:
            self._state = self._builder.build(state.manifest, replayed.tables, state.pin, state)
        return not replayed.is_superseded

    async def _read(self, manifest_id: int) -> Versioned[Manifest]:
        manifest = await self._manifests.read(manifest_id)
        if manifest is None:
            raise ManifestMissing(manifest_id)
        return Versioned(manifest_id, manifest)
