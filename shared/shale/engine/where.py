"""Which database is meant, and how its stores are reached: the arguments that ``Db`` and ``DbReader`` share."""

from dataclasses import dataclass, field

import anyio

from shale.env import Env
from shale.errors import InvalidRequestError
from shale.format.transform import BlockTransformer
from shale.store.connect import connect
from shale.store.location import normalize_path, parse_location, parse_store_url
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Stores:
    """Connected stores.  ``wal`` is ``None`` if the WAL lives with the rest; ``own`` were made here."""

    main: ObjectStore
    wal: ObjectStore | None
    own: tuple[ObjectStore, ...]

    async def aclose(self) -> None:
        """Close what was made here; stores that a caller passed stay open."""
        with anyio.CancelScope(shield=True):
            for store in self.own:
                await store.aclose()


@dataclass(frozen=True, slots=True)
class Where:
    """A database that has been named but not touched.  Pickles if its stores are URLs, and its transformer does."""

    store: str | ObjectStore
    root: str
    wal_store: str | ObjectStore | None = None
    store_options: StoreOptions = field(default_factory=StoreOptions)
    block_transformer: BlockTransformer | None = field(default=None, repr=False)

    def connect(self, env: Env, metrics: Metrics, *, component: str) -> Stores:
        """Make adapters for URLs, and put metering and retries around all stores."""
        main = connect(self.store, env, metrics, self.store_options, component=component)
        own: list[ObjectStore] = [main] if isinstance(self.store, str) else []
        wal = None
        if self.wal_store is not None:
            wal = connect(self.wal_store, env, metrics, self.store_options, component=component, store_type="wal")
            own += [wal] if isinstance(self.wal_store, str) else []
        return Stores(main, wal, tuple(own))


def resolve(
    where: str | None,
    *,
    store: str | ObjectStore | None = None,
    path: str | None = None,
    wal_store: str | ObjectStore | None = None,
    store_options: StoreOptions | None = None,
    block_transformer: BlockTransformer | None = None,
) -> Where:
    """Understand the arguments of ``open``: one URL, or a store and a path.

    Raises:
        InvalidRequestError: too much, too little, or not understood.
    """
    options = store_options if store_options is not None else StoreOptions()
    wal = parse_store_url(wal_store) if isinstance(wal_store, str) else wal_store
    if store is None:
        if path is not None:
            raise InvalidRequestError("a path belongs to a store: name the store too, or give one URL")
        location = parse_location(where)
        return Where(location.store_url, location.path, wal, options, block_transformer)
    if where is not None and path is not None:
        raise InvalidRequestError(f"two paths were given: {where!r} and {path!r}")
    root = where if where is not None else path
    if root is None:
        raise InvalidRequestError("a store was named, but no path in it")
    if "://" in root:
        raise InvalidRequestError(f"a store and the URL {root} were given: use one or the other")
    url = parse_store_url(store) if isinstance(store, str) else store
    return Where(url, normalize_path(root), wal, options, block_transformer)
