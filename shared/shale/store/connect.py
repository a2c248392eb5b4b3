"""Opens stores by URL."""

from typing import TYPE_CHECKING

from shale.env import Env
from shale.errors import InvalidRequestError
from shale.store.location import directory_of, parse_store_url
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.store.retry import RetryingStore
from shale.types import CasMode

if TYPE_CHECKING:
    from shale.store.failing_writes import FailingWrites
    from shale.store.memory import MemoryStore
    from shale.telemetry.metrics import Metrics

memory_stores: "dict[str, MemoryStore]" = {}
"""``memory:///`` names one store per process, as a directory would."""


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """Return the adapter for a store URL, without retries and metrics.  Sends no request.

    Raises:
        InvalidRequestError: the URL or the options cannot be understood.
    """
    options = options if options is not None else StoreOptions()
    url = parse_store_url(url)
    scheme = url.partition("://")[0]
    if scheme == "memory":
        from shale.store.memory import MemoryStore

        return memory_stores.setdefault(url, MemoryStore(url=url))
    if scheme == "file":
        from shale.store.local_store.adapter import LocalStore

        return LocalStore(directory_of(url), fsync=options.fsync)
    from shale.store.cloud_store.adapter import CloudStore

    return CloudStore(url, options)


def connect(
    url: str | ObjectStore,
    env: Env,
    metrics: "Metrics | None" = None,
    options: StoreOptions | None = None,
    *,
    component: str = "admin",
    store_type: str = "main",
    writes: "FailingWrites | None" = None,
) -> RetryingStore:
    """Return the store that all parts of a process share: with metrics for attempts, and retries.

    Args:
        url: the URL, an adapter, or a store that this function returned, which is returned again.
        component: the label of the metrics: writer, reader, compactor, worker, gc, admin or pipeline.
        store_type: main or wal.
        writes: told of failing writes, of all stores of the process.
    """
    if isinstance(url, RetryingStore):
        return url
    options = options if options is not None else StoreOptions()
    adapter = open_store(url, options) if isinstance(url, str) else url
    if metrics is not None:
        from shale.store.metered import MeteredStore

        adapter = MeteredStore(adapter, env.clock, metrics, component=component, store_type=store_type)
    if options.cas is CasMode.TWO_PHASE:
        adapter = _two_phase(adapter, env, options)
    return RetryingStore(adapter, env, options.retry, writes=writes)


def _two_phase(adapter: ObjectStore, env: Env, options: StoreOptions) -> ObjectStore:
    from shale.store.transactional.connect import open_transactional_store
    from shale.store.two_phase.store import TwoPhaseStore

    if options.transactional_url is None:
        raise InvalidRequestError("store.cas is two-phase: store.transactional_url must name the store of records")
    records = open_transactional_store(options.transactional_url)
    return TwoPhaseStore(adapter, records, env, options.ack_after, checks_id=True)
