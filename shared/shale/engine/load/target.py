"""The target of a bulk load: a database that does not exist yet, or an existing one whose writer this process becomes.

GC deletes nothing of a load before the commit, however long the upload takes.  Without a manifest there is no GC.  In
an existing database this writer holds the epoch, so the newest L0 does not change before the commit, and ids of the
load are not older than it.  If another process becomes the writer, the commit fails.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, TypedDict, Unpack

import anyio

from shale.engine.load.manifest import LoadStamp, append_load, in_key_order, new_database
from shale.engine.location import ConnectedDatabase
from shale.engine.open import open_writer
from shale.engine.options import DbOptions, FlushType
from shale.engine.write.clean_close import require_clean_close
from shale.engine.write.writer import Writer
from shale.env import Env
from shale.errors import InvalidDbState, ObjectVersionExists, ShaleError, UnavailableError
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, Manifest, ManifestVersion, Sst

L0_WAIT_TIMEOUT_S = 300.0
"""How long the flush of the WAL's rows may wait until L0 is below its limit."""

POLL_INTERVAL_S = 5.0
_CLOSE_TIMEOUT_S = 10.0
"""How long an aborted load waits for the store to take the last manifest."""


class TakeOverOptions(TypedDict, total=False):
    """How to become the writer of an existing database.

    wal_store: the store of the WAL, if it has one of its own.
    fence: take over from a writer that runs or may run.
    l0_wait_s: how long to wait while L0 is full.
    transformer: transforms every section of SSTs and WAL files.
    manifest_write_version: see ``ConnectOptions``.
    """

    wal_store: ObjectStore | None
    fence: bool
    l0_wait_s: float
    transformer: BlockTransformer | None
    manifest_write_version: ManifestVersion


class LoadTarget(Protocol):
    """A database that accepts one load."""

    stamp: LoadStamp

    async def commit(self, ssts: Iterable[Sst]) -> Manifest:
        """Add all SSTs to the manifest in one commit; they are durable and hold rows of ``stamp``.

        Raises:
            InvalidRequestError: two of them share a key.
            FencedError, InvalidDbState: another process owns the database; nothing was written.
        """
        ...

    async def wait_until_lost(self) -> ShaleError:
        """Wait until a commit has become impossible, and return why."""
        ...

    async def close(self) -> None:
        """Release the database; without a commit its rows are unchanged."""
        ...


class NewDatabase:
    """A path without a database; the commit creates the first manifest."""

    def __init__(self, store: ObjectStore, root: str, manifests: ManifestStore, stamp: LoadStamp) -> None:
        self._store = store
        self._root = root
        self._manifests = manifests
        self.stamp = stamp

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics,
        *,
        stamp: LoadStamp | None = None,
        manifest_write_version: ManifestVersion = MANIFEST_VERSION,
    ) -> "NewDatabase":
        """Write nothing yet.

        Args:
            stamp: the stamp of a load that another process began.
            manifest_write_version: see ``ConnectOptions``.

        Raises:
            InvalidDbState: the path has a database, or one was destroyed there.
        """
        await require_not_destroyed(store, root)
        options = ProtocolOptions(manifest_write_version=manifest_write_version)
        manifests = ManifestStore(store, root, env, metrics, options)
        if await manifests.try_read_latest() is not None:
            raise InvalidDbState(
                f"there is a database at {root or '/'} in {store.url}: append to it, or take another path"
            )
        if stamp is None:
            now_ms = env.clock.now_ms()
            stamp = LoadStamp(seq=1, create_ts=now_ms, not_before_ms=now_ms, keeps_expired=False)
        return cls(store, root, manifests, stamp)

    async def commit(self, ssts: Iterable[Sst]) -> Manifest:
        """See ``LoadTarget``."""
        manifest = new_database(in_key_order(ssts), self.stamp)
        await require_not_destroyed(self._store, self._root)
        try:
            await self._manifests.create_new(manifest)
        except ObjectVersionExists as error:
            # A lost response looks the same.  Ids of SSTs are unique, so an equal manifest is this commit.
            if not manifest.tree.compacted or await self._manifests.read(1) != manifest:
                place = f"{self._root or '/'} in {self._store.url}"
                raise InvalidDbState(
                    f"another process created a database at {place} meanwhile; nothing was loaded"
                ) from error
        return manifest

    async def wait_until_lost(self) -> ShaleError:
        """See ``LoadTarget``."""
        while True:
            # An unavailable store proves nothing, and may recover before the commit.
            with suppress(UnavailableError):
                if await self._manifests.try_read_latest() is not None:
                    return self._lost()
            await anyio.sleep(POLL_INTERVAL_S)

    async def close(self) -> None:
        """See ``LoadTarget``."""

    def _lost(self) -> InvalidDbState:
        place = f"{self._root or '/'} in {self._store.url}"
        return InvalidDbState(f"another process created a database at {place} meanwhile; nothing was loaded")


class ExistingDatabase:
    """An existing database whose writer is this process until ``close``."""

    def __init__(self, writer: Writer, stamp: LoadStamp) -> None:
        self._writer = writer
        self.stamp = stamp

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics,
        **options: Unpack[TakeOverOptions],
    ) -> "ExistingDatabase":
        """Become the writer and flush every row of the WAL to L0, so that replay later finds no older rows.

        Args:
            store, root, env, metrics: the database and its surroundings.
            options: see ``TakeOverOptions``.

        Raises:
            InvalidDbState: there is no database, or its last writer did not close it cleanly.
            UnavailableError: L0 is full, and no compactor shrinks it.
        """
        writer = await open_writer(
            ConnectedDatabase(
                store,
                root,
                options.get("wal_store"),
                options.get("transformer"),
                options.get("manifest_write_version", MANIFEST_VERSION),
            ),
            DbOptions(create_if_missing=False),
            env=env,
            metrics=metrics,
            admit=None if options.get("fence") else require_clean_close,
        )
        try:
            return cls(writer, await _prepare(writer, options.get("l0_wait_s", L0_WAIT_TIMEOUT_S)))
        except BaseException:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await _close(writer)
            raise

    async def commit(self, ssts: Iterable[Sst]) -> Manifest:
        """See ``LoadTarget``."""
        ordered, writer = in_key_order(ssts), self._writer
        writer.durability.check()
        if not ordered:
            return writer.manifest.current
        wal_id = writer.durability.durable_wal_id
        return await writer.manifest.commit(
            lambda manifest: append_load(manifest, ordered, self.stamp, last_wal_id=wal_id)
        )

    async def wait_until_lost(self) -> ShaleError:
        """See ``LoadTarget``: the writer polls the manifest."""
        return await self._writer.durability.wait_failed()

    async def close(self) -> None:
        """See ``LoadTarget``."""
        await _close(self._writer)


async def _close(writer: Writer) -> None:
    """Close the writer; abort it if it has failed, since another writer may own the database."""
    if writer.durability.problem is not None:
        await writer.abort()
    else:
        await writer.close(FlushType.NONE)


async def _prepare(writer: Writer, l0_wait_s: float) -> LoadStamp:
    try:
        with anyio.fail_after(l0_wait_s):
            await writer.flush(FlushType.MEMTABLE)
    except TimeoutError as error:
        views = len(writer.manifest.current.tree.l0)
        raise UnavailableError(
            f"L0 is full ({views} SSTs) and rows of the WAL cannot be flushed: start a compactor"
        ) from error
    return LoadStamp(
        seq=writer.last_seq + 1,
        create_ts=await writer.pipeline.clock.tick(),
        not_before_ms=newest_l0_ms(writer.manifest.current),
        keeps_expired=True,
    )
