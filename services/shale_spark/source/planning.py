"""Plans a read: takes a snapshot, looks into block indexes, and hands every task its part."""

from dataclasses import dataclass
from functools import partial
from itertools import chain

from shale.engine.where import Stores
from shale.env import Env
from shale.errors import WalTruncated
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.gather import gather
from shale.telemetry.metrics import Metrics
from shale.types import KeyRange, SstView
from shale_compactor.execution.subcompactions import Anchor, sample_anchors
from shale_spark.source.filters import KeySet
from shale_spark.source.lease import let_go
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import Lease, ReadPlan, plan_key_sets, trim_manifest, views_in
from shale_spark.source.snapshot import Snapshot, take_snapshot
from shale_spark.source.tail import replay_few, rows_of

_CACHE_BYTES = 64 * 1024 * 1024
_INDEXES_AT_ONCE = 16
_SMALL_SHARE = 8
"""An SST with less than this part of what a task reads is never cut, so its index need not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """One plan per task, in the order of their keys; none if there is nothing to read."""

    lease: Lease
    plans: tuple[ReadPlan, ...]


async def plan_read(options: ReadOptions, wanted: KeySet, env: Env, *, is_shared: bool = True) -> PlannedRead:
    """Plan a read of the keys that are wanted.

    Args:
        options: of the read.
        wanted: which keys.
        env: the outside world.
        is_shared: see ``take_snapshot``.

    Raises:
        LatestRecordMissing, InvalidDbState, CheckpointMissing: see ``take_snapshot``.
        CorruptionError: an index is malformed or gone.
    """
    stores = options.where.connect(env, Metrics(), component="pipeline")
    try:
        try:
            return await _plan(options, wanted, stores, env, is_shared=is_shared)
        except WalTruncated:
            if options.checkpoint is not None:
                raise
            # The database was flushed, and its WAL collected, after the snapshot was taken: a newer one has it all.
            return await _plan(options, wanted, stores, env, is_shared=is_shared)
    finally:
        await stores.aclose()


async def _plan(options: ReadOptions, wanted: KeySet, stores: Stores, env: Env, *, is_shared: bool) -> PlannedRead:
    snapshot = await take_snapshot(
        stores,
        options.where,
        env,
        checkpoint=options.checkpoint,
        lifetime_ms=round(options.lifetime_s * 1000),
        is_shared=is_shared,
    )
    try:
        return await _planned(options, wanted, snapshot, stores, env)
    except BaseException:
        if not is_shared and options.checkpoint is None:
            await let_go(options.where, snapshot.lease.checkpoint_id, stores, env)
        raise


async def _planned(options: ReadOptions, wanted: KeySet, snapshot: Snapshot, stores: Stores, env: Env) -> PlannedRead:
    if wanted.is_empty:
        return PlannedRead(lease=snapshot.lease, plans=())
    anchors = [] if wanted.keys is not None else await _anchors(options, wanted.key_range, snapshot, stores, env)
    sets = plan_key_sets(anchors, wanted, options.partition_bytes)
    newer = None
    if snapshot.wal is not None:
        min_seq = snapshot.manifest.last_l0_seq
        newer = await replay_few(
            stores, options.where, snapshot.wal, min_seq=min_seq, bytes_max=options.tail_bytes, env=env
        )
    plans = [
        ReadPlan(
            where=options.where,
            manifest_bytes=trim_manifest(snapshot.manifest, keys.hull),
            lease=snapshot.lease,
            keys=keys,
            prefix=options.prefix,
            newer=None if newer is None else rows_of(newer, keys.hull),
            wal=snapshot.wal if newer is None else None,
            merge_operator=options.merge_operator,
        )
        for keys in sets
    ]
    return PlannedRead(lease=snapshot.lease, plans=tuple(plans))


async def _anchors(
    options: ReadOptions, key_range: KeyRange, snapshot: Snapshot, stores: Stores, env: Env
) -> list[Anchor]:
    """Where the data of a range can be cut, and how much of it lies between."""
    paths = SstPaths.of(options.where.root, snapshot.manifest)
    transformer = options.where.block_transformer
    reader = SstReader(stores.main, paths, BlockCache(_CACHE_BYTES), env, with_filters=False, transformer=transformer)

    async def sample(view: SstView, part: KeyRange) -> list[Anchor]:
        info = view.sst.info
        if info.data_len * _SMALL_SHARE <= options.partition_bytes:
            return [Anchor(part.first_key or b"", info.data_len)]
        index = (await reader.meta(view.sst)).index
        return sample_anchors(index.separators, index.offsets, info.data_len, part)

    found: list[Anchor] = []
    views = views_in(snapshot.manifest, key_range)
    for start in range(0, len(views), _INDEXES_AT_ONCE):
        some = views[start : start + _INDEXES_AT_ONCE]
        found += chain.from_iterable(await gather([partial(sample, view, part) for view, part in some]))
    return found
