"""Where the WAL of each database of one process lives: as the settings say, or as its manifest does."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from shale.service.process import Process
from shale.service.store_start import store_options
from shale.store.connect import connect
from shale.store.location import parse_store_url
from shale.store.port import ObjectStore
from shale.types import Manifest
from shale_gc.settings import GcSettings


class WalStores:
    """Stores of WALs, each opened once and closed at the end; use with ``async with``."""

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
        """The store of a database's own WAL; ``None``: it lives with the rest.

        The settings come first: what they say of this database, then ``database.wal_store`` for the one that the
        process is named after.  Then the manifest, as far as it names a store; at last ``database.wal_store`` again.

        Raises:
            InvalidRequestError: the manifest names a store that cannot be understood.
        """
        process = self._process
        named = process.settings.wal_stores.get(root)
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
