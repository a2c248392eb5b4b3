"""``Admin``: what is done to a database from outside its processes."""

from datetime import timedelta
from typing import Any

from shale import plugins
from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.place import AdminPlace
from shale.admin.states import StateAdmin
from shale.admin.submission import submit
from shale.compaction.requests import Spec
from shale.compat.slatedb.background import COLLECTOR_ONCE, COMPANIONS, Place, in_seconds
from shale.compat.slatedb.choices import CompactionSpec
from shale.compat.slatedb.clone import CloneBuilder
from shale.compat.slatedb.durations import format_duration
from shale.compat.slatedb.errors import invalid, translated, translates
from shale.compat.slatedb.handles import Handle, Once, checkpoint_id_of
from shale.compat.slatedb.manifests import checkpoint_of, compaction_of, compactions_of, engine_spec, manifest_of
from shale.compat.slatedb.options import (
    CheckpointOptions,
    CloneSourceSpec,
    GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
    GarbageCollectorScheduleOptions,
)
from shale.compat.slatedb.settings_schema import DEFAULTS, check_settings
from shale.compat.slatedb.state_values import (
    Checkpoint,
    CheckpointCreateResult,
    Compaction,
    CompactorStateView,
    VersionedCompactions,
    VersionedManifest,
)
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.engine.where import Stores
from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing
from shale.format.names import deleting_key, wal_prefix
from shale.format.sequence_tracker import SequenceTracker
from shale.garbage.destroy import DestroyTarget, destroy
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.store.port import ObjectStore as StorePort
from shale.telemetry.metrics import Metrics
from shale.types import Ulid

_SECONDS_MAX = 8_210_266_876_799
"""The last second that SlateDB's calendar knows: the end of the year 262142."""
_LIFETIME_MAX_MS = 1 << 45
"""Above every lifetime that can be stored."""


class Admin(Handle):
    """Works beside any mixture of processes; made by an ``AdminBuilder``."""

    __slots__ = ("_checkpoints", "_compactions", "_env", "_manifests", "_place", "_states", "_wal_store")

    _place: Place
    _env: Env
    _manifests: ManifestStore
    _compactions: CompactionsStore
    _checkpoints: CheckpointAdmin
    _states: StateAdmin
    _wal_store: StorePort | None

    @translates
    async def read_manifest(self, id: int | None) -> VersionedManifest | None:  # noqa: A002 - the binding's name
        """A version of the manifest, or the newest; ``None`` if there is no such one."""
        found = await self._states.manifest(id)
        return None if found is None else manifest_of(found.id, found.value)

    @translates
    async def list_manifests(self, _from: int | None, to: int | None) -> list[VersionedManifest]:
        """The versions from one id on, and below another one."""
        return [manifest_of(found.id, found.value) async for found in self._states.manifests(_from, to)]

    @translates
    async def read_compactions(self, id: int | None) -> VersionedCompactions | None:  # noqa: A002
        """A version of the compactions file, or the newest; ``None`` if there is no such one."""
        found = await self._states.compactions(id)
        return None if found is None else compactions_of(found.id, found.value)

    @translates
    async def list_compactions(self, _from: int | None, to: int | None) -> list[VersionedCompactions]:
        """The versions of the compactions file from one id on, and below another one."""
        return [compactions_of(found.id, found.value) async for found in self._states.compactions_files(_from, to)]

    @translates
    async def read_compaction(self, compaction_id: str, compactions_id: int | None) -> Compaction | None:
        """One compaction as a version of the file, or the newest, has it.

        Raises:
            Error: the id is no ULID.
        """
        wanted = Ulid.parse(compaction_id.upper())
        if wanted is None:
            raise invalid(f"invalid compaction_id ULID: {compaction_id!r}")
        entry = await self._states.compaction(wanted, file_id=compactions_id)
        return None if entry is None else compaction_of(entry)

    @translates
    async def read_compactor_state_view(self) -> CompactorStateView:
        """The newest compactions and the manifest that was read after them.

        Raises:
            Error: there is no database.
        """
        view = await self._states.state_view()
        compactions = view.compactions
        return CompactorStateView(
            compactions=None if compactions is None else compactions_of(compactions.id, compactions.value),
            manifest=manifest_of(view.manifest.id, view.manifest.value),
        )

    @translates
    async def submit_compaction(self, spec: CompactionSpec) -> Compaction:
        """Ask the compactor for exactly this.

        Raises:
            Error: a rule of compactions is broken, which SlateDB finds out only when it would begin; or there is no
                database, or no compactor was ever started on it.
        """
        wanted = engine_spec(spec)
        try:
            entries, _ = await submit(self._manifests, self._compactions, self._env, Spec(wanted))
        except LatestRecordMissing as error:
            raise InvalidDbState("there is no database") from error
        return compaction_of(entries[0])

    @translates
    async def list_checkpoints(self, name_filter: str | None) -> list[Checkpoint]:
        """All checkpoints, or those of a name; the empty name means those without one."""
        return [checkpoint_of(found) for found in await self._checkpoints.list(name_filter)]

    @translates
    async def create_detached_checkpoint(self, options: CheckpointOptions) -> CheckpointCreateResult:
        """Keep the newest state, or the one of another checkpoint.

        Raises:
            Error: there is no such database or checkpoint, or the lifetime is impossible.
        """
        source_id = None if options.source is None else checkpoint_id_of(options.source)
        made = await self._checkpoints.create(_lifetime(options.lifetime_ms), source_id, options.name)
        return CheckpointCreateResult(id=str(made.id), manifest_id=made.manifest_id)

    @translates
    async def refresh_checkpoint(self, id: str, lifetime_ms: int | None) -> None:  # noqa: A002
        """Let a checkpoint live for so long from now on.

        Raises:
            Error: it is not there.
        """
        await self._checkpoints.refresh(checkpoint_id_of(id), _lifetime(lifetime_ms))

    @translates
    async def delete_checkpoint(self, id: str) -> None:  # noqa: A002
        """Let go of a state; nothing happens if it is not kept."""
        await self._checkpoints.delete(checkpoint_id_of(id))

    @translates
    async def get_timestamp_for_sequence(self, seq: int, round_up: bool) -> int | None:
        """The second in which the database reached a sequence number; ``None`` if no point is known."""
        return (await self._tracker()).seq_to_time(seq, round_up=round_up)

    @translates
    async def get_sequence_for_timestamp(self, timestamp_secs: int, round_up: bool) -> int | None:
        """The sequence number that the database had reached in a second; ``None`` if no point is known.

        Raises:
            Error: no calendar knows that second.
        """
        if abs(timestamp_secs) > _SECONDS_MAX:
            raise invalid(f"invalid timestamp seconds: {timestamp_secs}")
        return (await self._tracker()).time_to_seq(timestamp_secs, round_up=round_up)

    @translates
    async def run_gc_once(self, options: GarbageCollectorOptions | None) -> None:
        """One pass of the collector; without options of every task.

        Raises:
            Error: impossible options, or a pass failed.
        """
        values = _COLLECTOR if options is None else _collector_values(options)
        try:
            await plugins.resolve(COMPANIONS, COLLECTOR_ONCE)(self._place, in_seconds(values))
        except LatestRecordMissing:
            return

    @translates
    async def delete_db(self, confirm: bool) -> list[str]:
        """Delete the database for ever; without ``confirm``: what that would delete.

        Raises:
            Error: with it: live checkpoints need the database, or there is none but other objects.
        """
        place = self._place
        if confirm:
            target = DestroyTarget(
                store=place.store, root=place.root, env=place.env, metrics=place.metrics, wal_store=self._wal_store
            )
            done = [each.key for each in (await destroy(target)).objects]
            return [*done, deleting_key(place.root)] if done else []
        keys = {meta.key for meta in await place.store.list(f"{place.root}/")}
        if self._wal_store is not None:
            keys.update(meta.key for meta in await self._wal_store.list(wal_prefix(place.root)))
        return sorted(keys)

    def create_clone_builder_from_source(self, source: CloneSourceSpec) -> CloneBuilder:
        """A builder of a clone at this place."""
        return CloneBuilder._of(self._place, source, self._wal_store)

    async def _tracker(self) -> SequenceTracker:
        latest = await self._manifests.try_read_latest()
        return SequenceTracker() if latest is None else SequenceTracker.decode(latest.value.sequence_tracker)


class AdminBuilder(Once):
    """Makes one ``Admin``."""

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        super().__init__()
        self._path = path
        self._store = adapter_of(object_store)
        self._wal_store: StorePort | None = None

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """The WAL lives in another store."""
        self._require_unused()
        self._wal_store = adapter_of(wal_object_store)

    def with_seed(self, seed: int) -> None:
        """Has no effect: what is drawn at random here is not part of what a program sees."""
        self._require_unused()

    def build(self) -> Admin:
        """The administrator; nothing is read yet.

        Raises:
            Error: the builder is used up.
        """
        self._use()
        env, metrics = Env.system(), Metrics()
        with translated():
            root = normalize_path(self._path)
        store = connect(self._store, env, metrics, component="admin")
        admin = Admin._blank()
        admin._env = env
        admin._place = Place(
            store=store, root=root, env=env, metrics=metrics, has_own_wal_store=self._wal_store is not None
        )
        wal = self._wal_store
        admin._wal_store = None if wal is None else connect(wal, env, metrics, component="admin", store_type="wal")
        place = AdminPlace.of(Stores(store, admin._wal_store, ()), root, env, metrics)
        admin._manifests, admin._compactions = place.manifests, place.compactions
        admin._checkpoints, admin._states = CheckpointAdmin(place), StateAdmin(place)
        return admin


_COLLECTOR: dict[str, Any] = check_settings(DEFAULTS)["garbage_collector_options"]


def _lifetime(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=min(ms, _LIFETIME_MAX_MS))


def _collector_values(options: GarbageCollectorOptions) -> dict[str, Any]:
    """A record as the settings write it."""
    return {
        "manifest_options": _swept(options.manifest_options),
        "wal_options": _swept(options.wal_options),
        "wal_fence_options": _swept(options.wal_fence_options),
        "compacted_options": _swept(options.compacted_options),
        "compactions_options": _swept(options.compactions_options),
        "detach_options": _scheduled(options.detach_options),
        "boundary_files_enabled": not options.disable_boundary_files,
    }


def _swept(options: GarbageCollectorDirectoryOptions | None) -> dict[str, Any] | None:
    if options is None:
        return None
    return {
        "interval": _duration(options.interval_ms),
        "min_age": _duration(options.min_age_ms),
        "dry_run": options.dry_run,
    }


def _scheduled(options: GarbageCollectorScheduleOptions | None) -> dict[str, Any] | None:
    return None if options is None else {"interval": _duration(options.interval_ms)}


def _duration(ms: int | None) -> str | None:
    return None if ms is None else format_duration(ms)
