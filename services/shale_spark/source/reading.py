"""What a task does: the visible rows of its keys, straight from the object store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.from_thread import start_blocking_portal

from shale.engine.memtable import Memtable
from shale.engine.pin import Pin
from shale.engine.read_options import ReadOptions
from shale.engine.read_view import ReadView
from shale.engine.task_host import first_error
from shale.engine.where import Stores
from shale.env import Env
from shale.errors import CorruptionError, ShaleError
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows, rows_from_entries
from shale.merge_operators import operator_of
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.sst.source import READ_AHEAD_BYTES
from shale.store.gather import gather
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from shale_spark.source.lease import keep_lease, lost
from shale_spark.source.plan import ReadPlan
from shale_spark.source.tail import replay_range
from shale_spark.tasks import prepare_process

if TYPE_CHECKING:
    from shale.engine.scan import Scan

_BUFFERS_BYTES = 64 * 1024 * 1024
"""What all sources of a merge may read ahead together."""
_BUFFER_BYTES_MIN = 256 * 1024
_COPIES = 4  # read and decoded, at hand and ahead
_CACHE_BYTES = 32 * 1024 * 1024
_KEYS_AT_FIRST = 8
_KEYS_AT_ONCE_MAX = 64
_FOUND_BYTES = 32 * 1024 * 1024
"""What the values of keys that are looked up together should not exceed; nobody knows before they were read."""


def read_rows(plan: ReadPlan) -> Iterator[Rows]:
    """The rows of one task, chunk by chunk, all of them values; for threads without an event loop.

    While the caller works on a chunk, the next ones are read.

    Raises:
        SnapshotLost: the checkpoint is gone.
        CorruptionError: an object is malformed, or gone although the checkpoint protects it.
        UnavailableError: the store gave up.
    """
    prepare_process()
    with start_blocking_portal("asyncio") as portal:
        opened = portal.wrap_async_context_manager(open_rows(plan, Env.system()))
        source = opened.__enter__()
        try:
            while (rows := portal.call(source.next)) is not None:
                yield rows
        finally:
            # Whatever ended this, a query that has seen enough among it, is no concern of the tasks inside.
            opened.__exit__(None, None, None)


class PlannedRows:
    """The rows of a plan; a ``RowSource`` whose rows are visible values."""

    def __init__(self, plan: ReadPlan, view: ReadView, stores: Stores, env: Env) -> None:
        self._plan = plan
        self._view = view
        self._stores = stores
        self._env = env
        self._left = list(plan.lookups or ())
        self._at_once = _KEYS_AT_FIRST
        self._scan: Scan | None = None
        if plan.lookups is None:
            self._scan = view.scan(plan.keys.key_range, prefix=plan.prefix)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        try:
            return await (self._scan.columns() if self._scan is not None else self._looked_up())
        except CorruptionError as error:
            raise await lost(error, self._plan, self._stores, self._env) or error from None

    async def _looked_up(self) -> Rows | None:
        self._view.pin.check()
        while self._left:
            keys, self._left = self._left[: self._at_once], self._left[self._at_once :]
            found = await gather([partial(self._view.get, key) for key in keys])
            entries = [entry for entry in found if entry is not None]
            self._at_once = keys_at_once(len(keys), sum(len(entry.value) for entry in entries))
            if entries:
                return rows_from_entries(entries)
        return None


def keys_at_once(count: int, found_bytes: int) -> int:
    """How many keys to look up after ``count``, whose values had ``found_bytes``: twice as many, if they may be alike.

    So large values are held by the few, and small ones do not wait for each other.
    """
    fitting = count * _FOUND_BYTES // max(found_bytes, 1)
    return max(1, min(2 * count, fitting, _KEYS_AT_ONCE_MAX))


@asynccontextmanager
async def open_rows(plan: ReadPlan, env: Env) -> AsyncIterator[PlannedRows]:
    """Begin to read a plan; its checkpoint is renewed while this is open."""
    stores = plan.where.connect(env, Metrics(), component="pipeline")
    try:
        async with anyio.create_task_group() as tasks:
            pin = Pin(plan.lease.checkpoint_id, plan.lease.expire_s)
            tasks.start_soon(keep_lease, plan, pin, stores, env, name="lease")
            read_ahead = ReadAhead(tasks)
            view = await _view(plan, pin, stores, read_ahead, env)
            yield PlannedRows(plan, view, stores, env)
            read_ahead.close()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = first_error(group)
        raise error if isinstance(error, ShaleError) else group from None
    finally:
        await stores.aclose()


async def _view(plan: ReadPlan, pin: Pin, stores: Stores, read_ahead: ReadAhead, env: Env) -> ReadView:
    manifest = plan.manifest
    tables = [Memtable.from_rows(plan.newer)] if plan.newer is not None and len(plan.newer) else []
    if plan.wal is not None:
        try:
            tables = await replay_range(
                stores, plan.where, plan.wal, plan.keys.hull, min_seq=manifest.last_l0_seq, env=env
            )
        except CorruptionError as error:
            raise await lost(error, plan, stores, env) or error from None
    looks_up = plan.lookups is not None or plan.prefix is not None
    reader = SstReader(
        stores.main,
        SstPaths.of(plan.where.root, manifest),
        BlockCache(_CACHE_BYTES),
        env,
        with_filters=looks_up,
        transformer=plan.where.block_transformer,
    )
    options = ReadOptions(
        merge_operator=_operator(plan.merge_operator),
        read_ahead_bytes=_read_ahead_bytes(manifest),
        read_ahead=read_ahead,
    )
    return ReadView(manifest, tables, reader, options, pin=pin)


def _read_ahead_bytes(manifest: Manifest) -> int:
    """The size of one read: less where many sources are merged, so that memory is bounded."""
    sources = max(len(tree.l0) + len(tree.compacted) for _, tree in manifest.trees())
    return max(_BUFFER_BYTES_MIN, min(READ_AHEAD_BYTES, _BUFFERS_BYTES // (_COPIES * max(sources, 1))))


def _operator(name: str | None) -> MergeOperator | None:
    return operator_of(name)
