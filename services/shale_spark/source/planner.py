"""Planning of a read: takes a snapshot, reads block indexes, and gives every task its part."""

from functools import partial
from itertools import chain

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.errors import WalTruncated
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.telemetry.metrics import Metrics
from shale.types import KeyRange, SstView
from shale_compactor.execution.subcompactions import Anchor, sample_anchors
from shale_spark.source.filters import KeySet
from shale_spark.source.lease import release_lease
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.read_plan import ReadLease, ReadPlan, plan_key_sets, trim_manifest, views_in
from shale_spark.source.snapshot import SparkSnapshot, take_snapshot
from shale_spark.source.wal_tail import replay_if_small, rows_in_range

_CACHE_BYTES = 64 * 1024 * 1024
_INDEXES_AT_ONCE = 16
_SMALL_SHARE = 8
"""An SST smaller than this part of what a task reads is never divided, so its index is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """One plan per task, in key order; none if there is nothing to read."""

    lease: ReadLease
    plans: tuple[ReadPlan, ...]


async def plan_read(options: SparkReadOptions, wanted: KeySet, env: Env, *, is_shared: bool = True) -> PlannedRead:
    """Plan a read of the keys that are wanted.

    Args:
        options: of the read.
        wanted: the keys.
        env: clock, randomness and ids.
        is_shared: see ``take_snapshot``.

    Raises:
        LatestRecordMissing, InvalidDbState, CheckpointMissing: see ``take_snapshot``.
        CorruptionError: an index is malformed or gone.
    """
    stores = options.where.connect(env, Metrics(), component="pipeline", is_bounded=True)
    try:
        try:
            return await _plan(options, wanted, stores, env, is_shared=is_shared)
        except WalTruncated:
            if options.checkpoint is not None:
                raise
            # The database was flushed, and its WAL collected, after the snapshot was taken: a newer snapshot is
            # complete.
            return await _plan(options, wanted, stores, env, is_shared=is_shared)
    finally:
        await stores.aclose()


async def _plan(
    options: SparkReadOptions, wanted: KeySet, stores: DatabaseStores, env: Env, *, is_shared: bool
) -> PlannedRead:
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
            await release_lease(options.where, snapshot.lease.checkpoint_id, stores, env)
        raise


async def _planned(
    options: SparkReadOptions, wanted: KeySet, snapshot: SparkSnapshot, stores: DatabaseStores, env: Env
) -> PlannedRead:
    if wanted.is_empty:
        return PlannedRead(lease=snapshot.lease, plans=())
    anchors = [] if wanted.keys is not None else await _anchors(options, wanted.key_range, snapshot, stores, env)
    sets = plan_key_sets(anchors, wanted, options.partition_bytes)
    newer = None
    if snapshot.wal is not None:
        min_seq = snapshot.manifest.last_l0_seq
        newer = await replay_if_small(
            stores, options.where, snapshot.wal, min_seq=min_seq, bytes_max=options.tail_bytes, env=env
        )
    plans = [
        ReadPlan(
            where=options.where,
            manifest_bytes=trim_manifest(snapshot.manifest, keys.hull),
            lease=snapshot.lease,
            keys=keys,
            prefix=options.prefix,
            newer=None if newer is None else rows_in_range(newer, keys.hull),
            wal=snapshot.wal if newer is None else None,
            merge_operator=options.merge_operator,
        )
        for keys in sets
    ]
    return PlannedRead(lease=snapshot.lease, plans=tuple(plans))


async def _anchors(
    options: SparkReadOptions, key_range: KeyRange, snapshot: SparkSnapshot, stores: DatabaseStores, env: Env
) -> list[Anchor]:
    """Return where the data of a range can be divided, and how much of it lies between."""
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
