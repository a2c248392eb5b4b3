"""The location of a database: the arguments that ``Db.open`` and ``DbReader.open`` share."""

import os
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.core.lazy_names import import_at_call
from shale.env import Env
from shale.errors import InvalidRequestError, WrongType
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.dispatch import use_kernels
from shale.store.connect import connect
from shale.store.environment import options_from, with_environment
from shale.store.location import UrlOrPath, normalize_path, parse_location, parse_store_url
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, CasMode, ManifestVersion

if TYPE_CHECKING:
    from shale.engine.wal_backend_store import WalBackendStore
    from shale.store.wal_backend import WalBackend
else:
    (WalBackendStore,) = import_at_call(globals(), WalBackendStore="shale.engine.wal_backend_store")

OPEN_TIMEOUT_S = 60.0
log = get_logger("db")


@dataclass(frozen=True, slots=True)
class DatabaseStores:
    """Connected stores.  ``wal`` is ``None`` if the WAL is in ``main``; ``own`` holds the stores to close."""

    main: ObjectStore
    wal: ObjectStore | None
    own: tuple[ObjectStore, ...]
    manifest_write_version: ManifestVersion = MANIFEST_VERSION

    async def aclose(self) -> None:
        """Close the stores that ``connect`` made; stores that the caller passed stay open."""
        with anyio.CancelScope(shield=True):
            for store in self.own:
                await store.aclose()


@dataclass(frozen=True, slots=True)
class ConnectedDatabase:
    """The stores of a database and its path in them.

    ``wal_store``: ``None`` if the WAL is in ``store``.  ``transformer``: applied to all sections of SSTs and WAL files.
    """

    store: ObjectStore
    root: str
    wal_store: ObjectStore | None = None
    transformer: BlockTransformer | None = field(default=None, repr=False)
    manifest_write_version: ManifestVersion = MANIFEST_VERSION


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """The location of a database, before any request.  Pickles if its stores are URLs and its transformer pickles."""

    store: str | ObjectStore
    root: str
    wal_store: str | ObjectStore | None = None
    store_options: StoreOptions = field(default_factory=StoreOptions)
    block_transformer: BlockTransformer | None = field(default=None, repr=False)
    manifest_write_version: ManifestVersion = MANIFEST_VERSION
    open_timeout_s: float | None = OPEN_TIMEOUT_S

    def connect(self, env: Env, metrics: Metrics, *, component: str, is_bounded: bool = False) -> DatabaseStores:
        """Connect to the stores and add metering and retries.

        Args:
            env: the clock.
            metrics: counts requests.
            component: a label of metrics.
            is_bounded: for a call whose caller waits: requests end with an error when credentials are refused, and when
                they are not answered within ``open_timeout_s``.
        """
        _warn_without_kernels()
        options = with_environment(self.store_options, os.environ)
        if is_bounded and options.retry.timeout_s is None:
            policy = replace(options.retry, timeout_s=self.open_timeout_s, fail_fast_auth=True)
            options = replace(options, retry=policy)
        main = connect(self.store, env, metrics, options, component=component)
        own: list[ObjectStore] = [main] if isinstance(self.store, str) else []
        wal = None
        if self.wal_store is not None:
            wal = connect(self.wal_store, env, metrics, options, component=component, store_type="wal")
            own += [wal] if isinstance(self.wal_store, str) else []
        return DatabaseStores(main, wal, tuple(own), self.manifest_write_version)

    def connected(self, stores: DatabaseStores) -> ConnectedDatabase:
        """Return the database in connected stores."""
        return ConnectedDatabase(
            stores.main, self.root, stores.wal, self.block_transformer, stores.manifest_write_version
        )


@cache
def _warn_without_kernels() -> None:
    """Say once per process that everything is slow because no compiled kernels are installed."""
    if not use_kernels():
        log.warning(Event.KERNELS_MISSING, hint="install a wheel, or run `python -m shale.kernels.compiler.module`")


def resolve(
    where: UrlOrPath | None,
    *,
    store: UrlOrPath | ObjectStore | None = None,
    path: UrlOrPath | None = None,
    wal_store: UrlOrPath | ObjectStore | None = None,
    wal: "WalBackend | None" = None,
    store_options: StoreOptions | None = None,
    block_transformer: BlockTransformer | None = None,
) -> DatabaseLocation:
    """Parse the arguments of ``open``: one URL, or a store and a path.

    Raises:
        InvalidRequestError: an argument is missing, superfluous or malformed.
    """
    options = store_options if store_options is not None else options_from(os.environ)
    if not isinstance(options, StoreOptions):
        raise WrongType(f"store_options is of type {type(options).__name__}: give shale.StoreOptions(…)")
    wal_place = _wal_place(wal_store, wal, options)
    if store is None:
        if path is not None:
            raise InvalidRequestError(f"path={path!r} was given without store: give both, or one URL")
        location = parse_location(where)
        return DatabaseLocation(location.store_url, location.path, wal_place, options, block_transformer)
    if where is not None and path is not None:
        raise InvalidRequestError(f"two paths were given: {where!r} and {path!r}; give one of them")
    root = where if where is not None else path
    if root is None:
        raise InvalidRequestError("store was given without a path in it: add the path of the database, path='orders'")
    if isinstance(root, str) and "://" in root:
        raise InvalidRequestError(
            f"a store and the URL {root} were given: give the path in the store, or the URL without a store"
        )
    return DatabaseLocation(_store_of(store, "the store"), normalize_path(root), wal_place, options, block_transformer)


def _store_of(store: UrlOrPath | ObjectStore, what: str) -> str | ObjectStore:
    """Return the canonical URL of a store, or the store object."""
    if isinstance(store, str | os.PathLike):
        return parse_store_url(store)
    if not hasattr(store, "get_range"):
        raise WrongType(f"{what} is of type {type(store).__name__}: give a URL, a pathlib.Path or a store object")
    return store


def _wal_place(
    wal_store: UrlOrPath | ObjectStore | None, wal: "WalBackend | None", options: StoreOptions
) -> str | ObjectStore | None:
    """Return the store of the WAL, if it is not that of the database."""
    if wal is None:
        return None if wal_store is None else _store_of(wal_store, "wal_store")
    if wal_store is not None:
        raise InvalidRequestError("wal and wal_store were given: a WAL is in a backend or in a store")
    if options.cas is CasMode.TWO_PHASE:
        raise InvalidRequestError("wal was given, and store.cas is two-phase, which commits WAL files itself")
    return WalBackendStore(wal)
