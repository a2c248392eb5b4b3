"""Where the SSTs of a load go: a database that does not exist yet, or one whose writer we become.

Nothing that is uploaded before the commit can be collected, however long that takes.  Without a manifest there is no
collector.  In a database whose epoch is ours the newest L0 stays what it is until we commit, and ids of the load are
not older than it; if somebody else becomes the writer, the commit fails.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import anyio

from shale.engine.bulk_load import LoadStamp, in_key_order, new_database, with_loaded
from shale.engine.last_writer import require_closed_writer
from shale.engine.options import DbOptions, FlushType
from shale.engine.writer import Writer
from shale.engine.writer_open import open_writer
from shale.env import Env
from shale.errors import InvalidDbState, ObjectVersionExists, ShaleError, UnavailableError
from shale.format.transform import BlockTransformer
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Sst

L0_WAIT_S = 300.0
"""How long rows of the WAL may wait for room in L0."""

_LOOK_EVERY_S = 5.0
_CLOSE_S = 10.0
"""How long somebody who gives up waits for the store to take the last manifest."""


class LoadTarget(Protocol):
    """A database that takes one load."""

    stamp: LoadStamp

    async def commit(self, ssts: Iterable[Sst]) -> Manifest:
        """Name the SSTs in the manifest, all or none; they are durable and hold rows of ``stamp``.

        Raises:
            InvalidRequestError: two of them share a key.
            FencedError, InvalidDbState: somebody else has the database; nothing was written.
        """
        ...

    async def until_lost(self) -> ShaleError:
        """Wait until a commit has become impossible."""
        ...

    async def close(self) -> None:
        """Let go of the database; without a commit its rows are what they were."""
        ...


class NewDatabase:
    """A place where there is no database; the commit is its first manifest."""

    def __init__(self, store: ObjectStore, root: str, manifests: ManifestStore, stamp: LoadStamp) -> None:
        self._store = store
        self._root = root
        self._manifests = manifests
        self.stamp = stamp

    @classmethod
    async def open(
        cls, store: ObjectStore, root: str, env: Env, metrics: Metrics, *, stamp: LoadStamp | None = None
    ) -> "NewDatabase":
        """Write nothing yet.

        Args:
            stamp: of a load that another process began.

        Raises:
            InvalidDbState: there is a database, or one was destroyed here.
        """
        await require_not_destroyed(store, root)
        manifests = ManifestStore(store, root, env, metrics)
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
            # An answer that was lost looks like this too; ids of SSTs are ours alone.
            if not manifest.tree.compacted or await self._manifests.read(1) != manifest:
                place = f"{self._root or '/'} in {self._store.url}"
                raise InvalidDbState(
                    f"somebody else made a database at {place} meanwhile; nothing was loaded"
                ) from error
        return manifest

    async def until_lost(self) -> ShaleError:
        """See ``LoadTarget``."""
        while True:
            # A store that is away says nothing about others, and may be back before the commit.
            with suppress(UnavailableError):
                if await self._manifests.try_read_latest() is not None:
                    return self._lost()
            await anyio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        """See ``LoadTarget``."""

    def _lost(self) -> InvalidDbState:
        place = f"{self._root or '/'} in {self._store.url}"
        return InvalidDbState(f"somebody else made a database at {place} meanwhile; nothing was loaded")


class TakenDatabase:
    """An existing database, of which this process is the writer until it is closed."""

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
        *,
        wal_store: ObjectStore | None = None,
        fence: bool = False,
        l0_wait_s: float = L0_WAIT_S,
        transformer: BlockTransformer | None = None,
    ) -> "TakenDatabase":
        """Become the writer, and bring every row of the WAL to L0: rows that are replayed later must not be older.

        Args:
            fence: take over from a writer that runs or may run.
            transformer: what SSTs and WAL files go through.

        Raises:
            InvalidDbState: there is no database, or its writer is not known to have closed it.
            UnavailableError: L0 is full, and no compactor makes room.
        """
        writer = await open_writer(
            store,
            root,
            DbOptions(create_if_missing=False),
            env=env,
            metrics=metrics,
            wal_store=wal_store,
            admit=None if fence else require_closed_writer,
            transformer=transformer,
        )
        try:
            return cls(writer, await _prepare(writer, l0_wait_s))
        except BaseException:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await _close(writer)
            raise

    async def commit(self, ssts: Iterable[Sst]) -> Manifest:
        """See ``LoadTarget``."""
        ordered, writer = in_key_order(ssts), self._writer
        writer.progress.check()
        if not ordered:
            return writer.manifest.current
        wal_id = writer.progress.durable_wal_id
        return await writer.manifest.commit(
            lambda manifest: with_loaded(manifest, ordered, self.stamp, last_wal_id=wal_id)
        )

    async def until_lost(self) -> ShaleError:
        """See ``LoadTarget``: the writer polls the manifest."""
        return await self._writer.progress.until_failed()

    async def close(self) -> None:
        """See ``LoadTarget``."""
        await _close(self._writer)


async def _close(writer: Writer) -> None:
    """Give the writer's place back, unless somebody else has it or nobody knows."""
    if writer.progress.problem is not None:
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
            f"L0 is full ({views} SSTs) and rows of the WAL wait for room: start a compactor"
        ) from error
    return LoadStamp(
        seq=writer.last_seq + 1,
        create_ts=await writer.clock.tick(),
        not_before_ms=newest_l0_ms(writer.manifest.current),
        keeps_expired=True,
    )
