"""From a URL to a store that can be worked with."""

from typing import TYPE_CHECKING

from shale.env import Env
from shale.store.location import directory_of, parse_store_url
from shale.store.memory import MemoryStore
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.store.retry import RetryingStore

if TYPE_CHECKING:
    from shale.telemetry.metrics import Metrics

_memory_stores: dict[str, MemoryStore] = {}
"""``memory:///`` is one place for everyone in the process, as a directory would be."""


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """The bare adapter for a store URL.  Nothing is read or written yet.

    Raises:
        InvalidRequestError: the URL or the options cannot be understood.
    """
    options = options if options is not None else StoreOptions()
    url = parse_store_url(url)
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return _memory_stores.setdefault(url, MemoryStore(url=url))
    if scheme == "file":
        from shale.store.local import LocalStore

        return LocalStore(directory_of(url), fsync=options.fsync)
    from shale.store.cloud import CloudStore

    return CloudStore(url, options)


def connect(
    url: str | ObjectStore,
    env: Env,
    metrics: "Metrics | None" = None,
    options: StoreOptions | None = None,
    *,
    component: str = "admin",
    store_type: str = "main",
) -> RetryingStore:
    """The store that all parts of a process share: attempts are counted, failures retried.

    Args:
        url: where; or an adapter that the caller made; or what this function returned, which is shared as it is.
        component: the label of the requests: writer, reader, compactor, worker, gc, admin or pipeline.
        store_type: main or wal.
    """
    if isinstance(url, RetryingStore):
        return url
    options = options if options is not None else StoreOptions()
    adapter = open_store(url, options) if isinstance(url, str) else url
    if metrics is not None:
        from shale.store.metered import MeteredStore

        adapter = MeteredStore(adapter, env.clock, metrics, component=component, store_type=store_type)
    return RetryingStore(adapter, env, options.retry)
