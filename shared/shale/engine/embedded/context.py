"""What the embedded services of a writer work on."""

from collections.abc import Callable

from shale.core.lazy_dataclass import dataclass
from shale.engine.embedded.work import L0Work
from shale.env import Env
from shale.iter.merge_operator import MergeOperator
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import SstOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedContext:
    """The database of one writer, for the services of its process.

    Args:
        store: the main store.
        root: the path of the database in it.
        env: clock and ids of the writer; threads of their own.
        metrics: the writer's registry.
        work: tells when L0s need a compaction.
        sst: options of new SSTs.
        writer_epoch: the writer's.
        l0_sst_size_bytes: the writer's.
        max_jobs: compactions at the same time.
        merge_operator: the writer's.
        disk_cache: the writer's.
        wal_store: the store of the WAL, if it is not ``store``.
        is_own_wal: whether a WAL file was written and flushed by this writer.
        collects: whether a collector is among the services.
    """

    store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    work: L0Work
    sst: SstOptions
    writer_epoch: Epoch
    l0_sst_size_bytes: int
    is_own_wal: Callable[[int], bool]
    max_jobs: int = 1
    merge_operator: MergeOperator | None = None
    disk_cache: DiskCacheOptions | None = None
    wal_store: ObjectStore | None = None
    collects: bool = True
