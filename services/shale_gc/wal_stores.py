"""The WAL stores of the databases of one process, from the settings or from the manifests."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from shale.service.config.secret_url import url_text
from shale.service.process import Process
from shale.service.store_startup import store_options
from shale.store.connect import connect
from shale.store.location import parse_store_url
from shale.store.port import ObjectStore
from shale.types import Manifest
from shale_gc.settings import GcSettings


class WalStores:
    """WAL stores by URL, each opened once and closed at the end; use with ``async with``."""

    def __init__(self, process: Process[GcSettings]) -> None:
        self._process = process
        self._open: dict[str, ObjectStore] = {}
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    def of(self, root: str, manifest: Manifest | None) -> ObjectStore | None:
        """Return the store of a database's WAL; ``None``: the main store.

        In this order: ``wal_stores`` of this database; ``database.wal_store`` for the main database of the process;
        the store that the manifest names; ``database.wal_store`` for all others.

        Raises:
            InvalidRequestError: the store URL in the manifest is malformed.
        """
        process = self._process
        named = url_text(process.settings.wal_stores.get(root))
        if named is None and root == process.root and process.wal_store is not None:
            return process.wal_store
        if named is None and manifest is not None:
            named = manifest.wal_object_store_uri
        return process.wal_store if named is None else self._at(parse_store_url(named))

    def _at(self, url: str) -> ObjectStore | None:
        process = self._process
        if url.rstrip("/") == process.store.url.rstrip("/"):
            return None
        if url not in self._open:
            options = store_options(process.settings.store)
            store = connect(url, process.env, process.metrics, options, component="gc", store_type="wal")
            self._closing.push_async_callback(store.aclose)
            self._open[url] = store
        return self._open[url]
