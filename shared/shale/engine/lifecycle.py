"""Calls on a database that is not open here: open a clone of another one, refresh and delete checkpoints, destroy.

They have SlateDB's names and are thin: ``shale.Admin`` has the same operations with all their options.
"""

from typing import NamedTuple, Protocol, Self, Unpack
from uuid import UUID

from shale.core.settings_values import Duration, parse_lifetime_ms
from shale.engine.location import ConnectedDatabase, DatabaseLocation, DatabaseStores
from shale.engine.open_context import OpenContext
from shale.engine.open_options import ConnectOptions, DbOpenOptions, OpenArguments, choose_options
from shale.engine.options import DbOptions
from shale.env import Env
from shale.errors import CheckpointMissing, UnknownCheckpoint
from shale.protocol.checkpoints import (
    release_checkpoints,
    renew_checkpoint,
    require_checkpoint_reference,
    resolve_checkpoint,
)
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.location import UrlOrPath
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint


class _Connected(NamedTuple):
    """A database without a handle."""

    stores: DatabaseStores
    root: str
    env: Env
    metrics: Metrics

    @classmethod
    def of(cls, where: UrlOrPath, store: UrlOrPath | ObjectStore | None, options: ConnectOptions) -> "_Connected":
        location, env, metrics = OpenArguments.of(where, store, None, options)
        env = env if env is not None else Env.system()
        metrics = metrics if metrics is not None else Metrics()
        return cls(location.connect(env, metrics, component="admin", is_bounded=True), location.root, env, metrics)

    def manifests(self) -> ManifestStore:
        options = ProtocolOptions(manifest_write_version=self.stores.manifest_write_version)
        return ManifestStore(self.stores.main, self.root, self.env, self.metrics, options)


class ParentState(Protocol):
    """The state that a clone begins with: ``shale.ParentCheckpoint``, whose package is above this one."""

    async def create_clone(self, clone: ConnectedDatabase, env: Env, metrics: Metrics) -> None:
        """Create the clone, or complete one that was interrupted."""
        ...


class DatabaseLifecycle:
    """The calls of ``Db`` that need no handle.  ``options`` are those of ``ConnectOptions``."""

    __slots__ = ()

    @classmethod
    def open_from_checkpoint(
        cls,
        where: UrlOrPath | None,
        parent: ParentState,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        options: DbOptions | None = None,
        **keywords: Unpack[DbOpenOptions],
    ) -> OpenContext[Self]:
        """Open a clone of another database for writing; create the clone if there is none.  See ``open``.

        Args:
            where, store, path, options, keywords: see ``open``; the place of the clone.
            parent: a ``shale.ParentCheckpoint``: the other database, in the same store, and a checkpoint of it.

        Raises:
            CheckpointMissing: the checkpoint does not exist, or has expired.
            LatestRecordMissing: the other database does not exist.
            InvalidRequestError: there is a database that is no clone of that one; the subclass says why.
        """
        chosen = choose_options(DbOptions, options, keywords)
        location, env, metrics = OpenArguments.of(where, store, path, keywords)
        return OpenContext(cls._open_from_checkpoint, location, parent, chosen, env, metrics)

    @classmethod
    async def _open_from_checkpoint(
        cls,
        where: DatabaseLocation,
        parent: ParentState,
        options: DbOptions,
        env: Env | None,
        metrics: Metrics | None,
    ) -> Self:
        env = env if env is not None else Env.system()
        metrics = metrics if metrics is not None else Metrics()
        stores = where.connect(env, metrics, component="admin", is_bounded=True)
        try:
            await parent.create_clone(where.connected(stores), env, metrics)
        finally:
            await stores.aclose()
        return await cls._open(where, options, env, metrics)

    async def close(self) -> None:
        """Release all resources; the class of handles implements it."""
        raise NotImplementedError

    @classmethod
    async def _open(cls, where: DatabaseLocation, options: DbOptions, env: Env | None, metrics: Metrics | None) -> Self:
        """Open a database for writing; the class of handles implements it."""
        raise NotImplementedError

    @staticmethod
    async def refresh_checkpoint(
        where: UrlOrPath,
        checkpoint_id: UUID | str,
        lifetime: Duration | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        **options: Unpack[ConnectOptions],
    ) -> Checkpoint:
        """Set the remaining lifetime of a checkpoint.

        Args:
            where: the database's URL; with ``store``, its path in that store.
            checkpoint_id: id or name.
            lifetime: time from now until it expires; ``None``: never.
            store: URL of a store, or a store object.
            options: see ``ConnectOptions``.

        Raises:
            LatestRecordMissing: there is no database.
            UnknownCheckpoint: there is no such checkpoint.
            InvalidCheckpointLifetime: not positive, or too long to be stored.
        """
        wanted, lifetime_ms = require_checkpoint_reference(checkpoint_id), parse_lifetime_ms(lifetime)
        database = _Connected.of(where, store, options)
        try:
            stored = await database.manifests().load()
            found = resolve_checkpoint(stored.value, wanted, database.env.clock.now_ms(), expired_too=True)
            return await renew_checkpoint(stored, database.env, found.id, lifetime_ms=lifetime_ms)
        except CheckpointMissing as error:
            raise UnknownCheckpoint(error.id) from error
        finally:
            await database.stores.aclose()

    @staticmethod
    async def delete_checkpoint(
        where: UrlOrPath,
        checkpoint_id: UUID | str,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        **options: Unpack[ConnectOptions],
    ) -> bool:
        """Delete a checkpoint; return whether it existed.

        Args:
            where, store, options: see ``refresh_checkpoint``.
            checkpoint_id: id or name.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing: no checkpoint has that name.  A missing id is not an error: the call can be repeated.
        """
        wanted = require_checkpoint_reference(checkpoint_id)
        database = _Connected.of(where, store, options)
        try:
            stored = await database.manifests().load()
            found = resolve_checkpoint(stored.value, wanted, database.env.clock.now_ms(), expired_too=True)
            return bool(await release_checkpoints(stored, [found.id]))
        except CheckpointMissing as error:
            if isinstance(error.id, UUID):
                return False
            raise
        finally:
            await database.stores.aclose()

    @staticmethod
    async def destroy(
        where: UrlOrPath, *, soft: bool, store: UrlOrPath | ObjectStore | None = None, **options: Unpack[ConnectOptions]
    ) -> None:
        """Destroy a database permanently; see ``Admin.destroy``.

        Args:
            where, store, options: see ``refresh_checkpoint``.
            soft: fence and mark it, and leave the deletion to GC, after the grace period and once no checkpoint is
                left.  Otherwise everything is deleted now; stop all its processes before.

        Raises:
            InvalidDeletion: not ``soft``, and there are live checkpoints or unknown objects.
            InvalidDbState: there are other objects but no database, or its state forbids a soft destroy.
            LatestRecordMissing: ``soft``, and there is no database.
        """
        from shale.gc.hard_destroy import DestroyTarget
        from shale.gc.hard_destroy import destroy as destroy_now
        from shale.gc.soft_destroy import destroy_later

        stores, root, env, metrics = _Connected.of(where, store, options)
        target = DestroyTarget(
            store=stores.main,
            root=root,
            env=env,
            metrics=metrics,
            wal_store=stores.wal,
            manifest_write_version=stores.manifest_write_version,
        )
        try:
            await (destroy_later(target) if soft else destroy_now(target))
        finally:
            await stores.aclose()
