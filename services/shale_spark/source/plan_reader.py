"""Execution of a read plan in a task: the visible rows of its keys, straight from the object store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal

from shale.concurrency.first_error import first_error
from shale.concurrency.gather import gather
from shale.concurrency.read_ahead import READ_AHEAD_BYTES, ReadAhead
from shale.engine.arrow.batches import in_batches
from shale.engine.location import DatabaseStores
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.lookup import get
from shale.engine.read.pins import Pin
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.read_point import ReadPoint
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.scan import Scan
from shale.env import Env
from shale.errors import CorruptionError, ShaleError
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows, rows_from_entries
from shale.merge_operators import resolve_operator
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from shale_spark.source.columns import ReadColumns
from shale_spark.source.lease import explain_missing, keep_lease
from shale_spark.source.read_plan import ReadPlan
from shale_spark.source.wal_tail import replay_range
from shale_spark.tasks import prepare_process

_BATCH_ROWS_MAX = 64 * 1024
_BATCH_BYTES_MAX = 16 * 1024 * 1024
_BUFFERS_BYTES = 64 * 1024 * 1024
"""Limit for what all sources of a merge read ahead together."""
_BUFFER_BYTES_MIN = 256 * 1024
_COPIES = 4  # raw and decoded bytes, of the current and of the next chunk
_CACHE_BYTES = 32 * 1024 * 1024
_KEYS_AT_FIRST = 8
_KEYS_AT_ONCE_MAX = 64
_FOUND_BYTES = 32 * 1024 * 1024
"""Target for the values of keys that are looked up together; their size is known only after the read."""


def read_rows(plan: ReadPlan) -> Iterator[Rows]:
    """Yield the rows of one task in chunks, all of them values; for threads without an event loop.

    The next chunks are read while the caller works on one.

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
            # The tasks inside are cancelled without an error: a query with a limit ends its reads early, too.
            opened.__exit__(None, None, None)


def read_batches(plan: ReadPlan, columns: ReadColumns) -> Iterator[Any]:
    """Yield the rows of one task as record batches of bounded size, in key order."""
    for rows in read_rows(plan):
        for part in in_batches(rows, rows_max=_BATCH_ROWS_MAX, bytes_max=_BATCH_BYTES_MAX):
            yield columns.batch(part)


class PlannedRows:
    """The rows of a plan; a ``RowSource`` whose rows are visible values."""

    def __init__(self, plan: ReadPlan, view: SuperVersion, stores: DatabaseStores, env: Env) -> None:
        self._plan = plan
        self._view = view
        self._stores = stores
        self._env = env
        self._left = list(plan.lookups or ())
        self._at_once = _KEYS_AT_FIRST
        self._scan: Scan | None = None
        if plan.lookups is None:
            self._scan = Scan(ReadPoint(view), ScanPlan(key_range=plan.keys.key_range, prefix=plan.prefix))

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        try:
            return await (self._scan.columns() if self._scan is not None else self._looked_up())
        except CorruptionError as error:
            raise await explain_missing(error, self._plan, self._stores, self._env) or error from None

    async def _looked_up(self) -> Rows | None:
        self._view.pin.check()
        while self._left:
            keys, self._left = self._left[: self._at_once], self._left[self._at_once :]
            found = await gather([partial(get, self._view, key) for key in keys])
            entries = [entry for entry in found if entry is not None]
            self._at_once = next_lookup_count(len(keys), sum(len(entry.value) for entry in entries))
            if entries:
                return rows_from_entries(entries)
        return None


def next_lookup_count(count: int, found_bytes: int) -> int:
    """Return how many keys to look up next: twice as many, if their values are likely to fit into ``_FOUND_BYTES``.

    Large values are thus held in small numbers, and small values are read in parallel.

    Args:
        count: keys of the previous lookup.
        found_bytes: size of their values.
    """
    fitting = count * _FOUND_BYTES // max(found_bytes, 1)
    return max(1, min(2 * count, fitting, _KEYS_AT_ONCE_MAX))


@asynccontextmanager
async def open_rows(plan: ReadPlan, env: Env) -> AsyncIterator[PlannedRows]:
    """Open a plan; its checkpoint is renewed while it is open."""
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


async def _view(plan: ReadPlan, pin: Pin, stores: DatabaseStores, read_ahead: ReadAhead, env: Env) -> SuperVersion:
    manifest = plan.manifest
    tables = [Memtable.from_rows(plan.newer)] if plan.newer is not None and len(plan.newer) else []
    if plan.wal is not None:
        try:
            tables = await replay_range(
                stores, plan.where, plan.wal, plan.keys.hull, min_seq=manifest.last_l0_seq, env=env
            )
        except CorruptionError as error:
            raise await explain_missing(error, plan, stores, env) or error from None
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
    return SuperVersion(manifest, tables, reader, options, pin=pin)


def _read_ahead_bytes(manifest: Manifest) -> int:
    """Return the size of one read: smaller where many sources are merged, so that memory is bounded."""
    sources = max(len(tree.l0) + len(tree.compacted) for _, tree in manifest.trees())
    return max(_BUFFER_BYTES_MIN, min(READ_AHEAD_BYTES, _BUFFERS_BYTES // (_COPIES * max(sources, 1))))


def _operator(name: str | None) -> MergeOperator | None:
    return resolve_operator(name)
