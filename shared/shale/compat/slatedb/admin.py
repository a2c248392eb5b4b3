"""``Admin``: administration of a database from outside its processes."""

from datetime import timedelta
from typing import Any

from shale import plugins
from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.context import AdminContext
from shale.admin.states import StateAdmin
from shale.admin.submission import submit
from shale.compaction.requests import Spec
from shale.compat.slatedb.clone import CloneBuilder
from shale.compat.slatedb.embedded import COLLECTOR_ONCE, EMBEDDED_GROUP, EmbeddedContext, in_seconds
from shale.compat.slatedb.errors import invalid, raises_slatedb_errors, slatedb_errors
from shale.compat.slatedb.handles import Handle, SingleUse, parse_checkpoint_id
from shale.compat.slatedb.manifests import checkpoint_of, compaction_of, compactions_of, engine_spec, manifest_of
from shale.compat.slatedb.settings.durations import format_duration
from shale.compat.slatedb.settings.schema import DEFAULTS, check_settings
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.types.enums import CompactionSpec
from shale.compat.slatedb.types.options import (
    CheckpointOptions,
    CloneSourceSpec,
    GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
    GarbageCollectorScheduleOptions,
)
from shale.compat.slatedb.types.states import (
    Checkpoint,
    CheckpointCreateResult,
    Compaction,
    CompactorStateView,
    VersionedCompactions,
    VersionedManifest,
)
from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing
from shale.format.names import deleting_key, wal_prefix
from shale.format.sequence_tracker import SequenceTracker
from shale.gc.hard_destroy import DestroyTarget, destroy
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.store.port import ObjectStore as StorePort
from shale.telemetry.metrics import Metrics
from shale.types import Ulid

_SECONDS_MAX = 8_210_266_876_799
"""The last second of SlateDB's calendar: the end of the year 262142."""
_LIFETIME_MAX_MS = 1 << 45
"""Longer than every lifetime that can be stored."""


class Admin(Handle):
    """Works beside any mixture of processes; made by an ``AdminBuilder``."""

    __slots__ = ("_checkpoints", "_compactions", "_env", "_manifests", "_place", "_states", "_wal_store")

    _place: EmbeddedContext
    _env: Env
    _manifests: ManifestStore
    _compactions: CompactionsStore
    _checkpoints: CheckpointAdmin
    _states: StateAdmin
    _wal_store: StorePort | None

    @raises_slatedb_errors
    async def read_manifest(self, id: int | None) -> VersionedManifest | None:  # noqa: A002 - the binding's name
        """Return a version of the manifest, or the newest; ``None`` if there is none."""
        found = await self._states.manifest(id)
        return None if found is None else manifest_of(found.id, found.value)

    @raises_slatedb_errors
    async def list_manifests(self, _from: int | None, to: int | None) -> list[VersionedManifest]:
        """Return the versions from one id on, and below another one."""
        return [manifest_of(found.id, found.value) async for found in self._states.manifests(_from, to)]

    @raises_slatedb_errors
    async def read_compactions(self, id: int | None) -> VersionedCompactions | None:  # noqa: A002
        """Return a version of the compactions file, or the newest; ``None`` if there is none."""
        found = await self._states.compactions(id)
        return None if found is None else compactions_of(found.id, found.value)

    @raises_slatedb_errors
    async def list_compactions(self, _from: int | None, to: int | None) -> list[VersionedCompactions]:
        """Return the versions of the compactions file from one id on, and below another one."""
        return [compactions_of(found.id, found.value) async for found in self._states.compactions_files(_from, to)]

    @raises_slatedb_errors
    async def read_compaction(self, compaction_id: str, compactions_id: int | None) -> Compaction | None:
        """Return one compaction from a version of the file, or from the newest.

        Raises:
            Error: the id is no ULID.
        """
        wanted = Ulid.parse(compaction_id.upper())
        if wanted is None:
            raise invalid(f"invalid compaction_id ULID: {compaction_id!r}")
        entry = await self._states.compaction(wanted, file_id=compactions_id)
        return None if entry is None else compaction_of(entry)

    @raises_slatedb_errors
    async def read_compactor_state_view(self) -> CompactorStateView:
        """Return the newest compactions and the manifest that was read after them.

        Raises:
            Error: there is no database.
        """
        view = await self._states.state_view()
        compactions = view.compactions
        return CompactorStateView(
            compactions=None if compactions is None else compactions_of(compactions.id, compactions.value),
            manifest=manifest_of(view.manifest.id, view.manifest.value),
        )

    @raises_slatedb_errors
    async def submit_compaction(self, spec: CompactionSpec) -> Compaction:
        """Submit exactly this compaction.

        Raises:
            Error: it breaks a rule, which SlateDB reports only when it starts; or there is no database, or no compactor
                was ever started on it.
        """
        wanted = engine_spec(spec)
        try:
            entries, _ = await submit(self._manifests, self._compactions, self._env, Spec(wanted))
        except LatestRecordMissing as error:
            raise InvalidDbState("there is no database") from error
        return compaction_of(entries[0])

    @raises_slatedb_errors
    async def list_checkpoints(self, name_filter: str | None) -> list[Checkpoint]:
        """Return all checkpoints, or those of a name; the empty name means those without one."""
        return [checkpoint_of(found) for found in await self._checkpoints.list(name_filter)]

    @raises_slatedb_errors
    async def create_detached_checkpoint(self, options: CheckpointOptions) -> CheckpointCreateResult:
        """Create a checkpoint of the newest state, or of the state of another checkpoint.

        Raises:
            Error: there is no such database or checkpoint, or the lifetime is invalid.
        """
        source_id = None if options.source is None else parse_checkpoint_id(options.source)
        made = await self._checkpoints.create(_lifetime(options.lifetime_ms), source_id, options.name)
        return CheckpointCreateResult(id=str(made.id), manifest_id=made.manifest_id)

    @raises_slatedb_errors
    async def refresh_checkpoint(self, id: str, lifetime_ms: int | None) -> None:  # noqa: A002
        """Set a checkpoint's lifetime, from now on.

        Raises:
            Error: there is no such checkpoint.
        """
        await self._checkpoints.refresh(parse_checkpoint_id(id), _lifetime(lifetime_ms))

    @raises_slatedb_errors
    async def delete_checkpoint(self, id: str) -> None:  # noqa: A002
        """Delete a checkpoint; nothing happens if there is none."""
        await self._checkpoints.delete(parse_checkpoint_id(id))

    @raises_slatedb_errors
    async def get_timestamp_for_sequence(self, seq: int, round_up: bool) -> int | None:
        """Return the second in which the database reached a sequence number; ``None`` if it is unknown."""
        return (await self._tracker()).seq_to_time(seq, round_up=round_up)

    @raises_slatedb_errors
    async def get_sequence_for_timestamp(self, timestamp_secs: int, round_up: bool) -> int | None:
        """Return the sequence number that the database had reached in a second; ``None`` if it is unknown.

        Raises:
            Error: the second is beyond the calendar.
        """
        if abs(timestamp_secs) > _SECONDS_MAX:
            raise invalid(f"invalid timestamp seconds: {timestamp_secs}")
        return (await self._tracker()).time_to_seq(timestamp_secs, round_up=round_up)

    @raises_slatedb_errors
    async def run_gc_once(self, options: GarbageCollectorOptions | None) -> None:
        """Run one pass of the collector; without options every task.

        Raises:
            Error: invalid options, or a pass failed.
        """
        values = _COLLECTOR if options is None else _collector_values(options)
        try:
            await plugins.resolve(EMBEDDED_GROUP, COLLECTOR_ONCE)(self._place, in_seconds(values))
        except LatestRecordMissing:
            return

    @raises_slatedb_errors
    async def delete_db(self, confirm: bool) -> list[str]:
        """Delete the database for ever; without ``confirm`` return what that would delete.

        Raises:
            Error: with ``confirm``: live checkpoints need the database, or there are only foreign objects.
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
        """Return a builder of a clone at this path."""
        return CloneBuilder._of(self._place, source, self._wal_store)

    async def _tracker(self) -> SequenceTracker:
        latest = await self._manifests.try_read_latest()
        return SequenceTracker() if latest is None else SequenceTracker.decode(latest.value.sequence_tracker)


class AdminBuilder(SingleUse):
    """Makes one ``Admin``."""

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        super().__init__()
        self._path = path
        self._store = adapter_of(object_store)
        self._wal_store: StorePort | None = None

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """Set the store of the WAL, if it is another one."""
        self._require_unused()
        self._wal_store = adapter_of(wal_object_store)

    def with_seed(self, seed: int) -> None:
        """Do nothing: random draws are not visible to programs here."""
        self._require_unused()

    def build(self) -> Admin:
        """Return the administrator; nothing is read yet.

        Raises:
            Error: the builder was used before.
        """
        self._use()
        env, metrics = Env.system(), Metrics()
        with slatedb_errors():
            root = normalize_path(self._path)
        store = connect(self._store, env, metrics, component="admin")
        admin = Admin._blank()
        admin._env = env
        admin._place = EmbeddedContext(
            store=store, root=root, env=env, metrics=metrics, has_own_wal_store=self._wal_store is not None
        )
        wal = self._wal_store
        admin._wal_store = None if wal is None else connect(wal, env, metrics, component="admin", store_type="wal")
        place = AdminContext.of(DatabaseStores(store, admin._wal_store, ()), root, env, metrics)
        admin._manifests, admin._compactions = place.manifests, place.compactions
        admin._checkpoints, admin._states = CheckpointAdmin(place), StateAdmin(place)
        return admin


_COLLECTOR: dict[str, Any] = check_settings(DEFAULTS)["garbage_collector_options"]


def _lifetime(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=min(ms, _LIFETIME_MAX_MS))


def _collector_values(options: GarbageCollectorOptions) -> dict[str, Any]:
    """Return a record in the notation of the settings."""
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
