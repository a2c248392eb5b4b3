"""Readers that run inside a client: ``DbReader`` of Shale, and that of the slatedb package."""

import asyncio
import contextlib
from abc import abstractmethod
from typing import Any

from tests.soak.clients.session import ClientSession, Result, Shared
from tests.soak.history.values import elements_in, name_in
from tests.soak.stack.daemons import MERGE_OPERATOR

OPEN_S, READ_S, READS_PER_READER = 30.0, 20.0, 150
LEASE_MS, POLL_MS = 15_000, 300


class EmbeddedSession(ClientSession):
    """Opens a reader, reads for a while, closes it, and opens the next one."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name, "reader")
        self._reader: Any = None
        self._left = 0
        self._opened = 0
        self._runner = asyncio.Runner()

    @property
    def _instance(self) -> str:
        return f"{self.name}.{self._opened}"

    @abstractmethod
    async def open(self) -> Any:
        """Open a reader."""

    @abstractmethod
    async def close_reader(self) -> None:
        """Close the reader."""

    @abstractmethod
    async def row(self, key: str) -> bytes | None:
        """Read one row."""

    @abstractmethod
    async def rows(self, prefix: str) -> dict[str, bytes]:
        """Read all rows below a prefix, of one state."""

    def act(self) -> bool:
        """See ``ClientSession``."""
        return self._runner.run(self._act())

    async def _act(self) -> bool:
        try:
            if self._reader is None or self._left <= 0:
                await self._reopen()
            self._left -= 1
            chosen = self.rng.choice(("row", "lists", "group"))
            key = {"row": self.register(), "lists": self.list_keys()[0].rpartition("/")[0] + "/"}.get(
                chosen, self.group()
            )
            start = asyncio.get_running_loop().time()
            value = await asyncio.wait_for(self._read(chosen, key), READ_S)
        except Exception as error:  # noqa: BLE001 - a reader may lose its lease, its SSTs or its store
            self.note_error(error)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.close_reader(), READ_S)
            self._reader = None
            return False
        function = {"row": "read", "lists": "txn", "group": "scan"}[chosen]
        self.note(function, key, None, Result("ok", value, self._instance), start)  # type: ignore[arg-type]
        return True

    async def _reopen(self) -> None:
        if self._reader is not None:
            await asyncio.wait_for(self.close_reader(), READ_S)
            self._reader = None
        self._opened += 1
        self._reader = await asyncio.wait_for(self.open(), OPEN_S)
        self._left = READS_PER_READER

    async def _read(self, chosen: str, key: str) -> Any:
        if chosen == "row":
            return name_in(await self.row(key))
        rows = await self.rows(key)
        if chosen == "group":
            return {name: name_in(value) for name, value in rows.items()}
        return [["r", name, elements_in(value)] for name, value in rows.items()]

    def note_error(self, error: Exception) -> None:
        """Write the error to the log of the process."""
        print(f"{self._instance}: {type(error).__name__}: {str(error)[:300]}", flush=True)

    def close(self) -> None:
        """See ``ClientSession``."""
        with contextlib.suppress(Exception):
            if self._reader is not None:
                self._runner.run(self.close_reader())
        self._runner.close()


class ShaleReaderSession(EmbeddedSession):
    """``shale.DbReader``."""

    async def open(self) -> Any:
        """See ``EmbeddedSession``."""
        import shale

        lease, poll = f"{LEASE_MS}ms", f"{POLL_MS}ms"
        opening: Any = shale.DbReader.open(
            self.shared.url,
            manifest_poll_interval=poll,
            checkpoint_lifetime=lease,
            merge_operator=MERGE_OPERATOR,
        )
        return await opening

    async def close_reader(self) -> None:
        """See ``EmbeddedSession``."""
        await self._reader.close()

    async def row(self, key: str) -> bytes | None:
        """See ``EmbeddedSession``."""
        found: bytes | None = await self._reader.get(key.encode())
        return found

    async def rows(self, prefix: str) -> dict[str, bytes]:
        """See ``EmbeddedSession``."""
        return {row.key.decode(): bytes(row.value) async for row in self._reader.scan(prefix=prefix.encode())}


class WheelReaderSession(EmbeddedSession):
    """``slatedb.uniffi.DbReader``; it also runs SlateDB's garbage collector now and then."""

    async def open(self) -> Any:
        """See ``EmbeddedSession``."""
        from slatedb import uniffi as slate

        from tests.interop.slatedb_databases import Concatenate
        from tests.soak.clients.wheel import open_store, root_of

        store = open_store(self.shared.url)
        if self._opened % 3 == 2:
            await collect_garbage(self.shared.url)
        builder = slate.DbReaderBuilder(root_of(self.shared.url), store)
        options = slate.ReaderOptions(
            manifest_poll_interval_ms=POLL_MS,
            checkpoint_lifetime_ms=LEASE_MS,
            max_memtable_bytes=16 << 20,
            skip_wal_replay=False,
            object_store_max_retries=None,
        )
        builder.with_options(options)
        builder.with_merge_operator(Concatenate())
        return await builder.build()

    async def close_reader(self) -> None:
        """See ``EmbeddedSession``."""
        await self._reader.shutdown()

    async def row(self, key: str) -> bytes | None:
        """See ``EmbeddedSession``."""
        value = await self._reader.get(key.encode())
        return None if value is None else bytes(value)

    async def rows(self, prefix: str) -> dict[str, bytes]:
        """See ``EmbeddedSession``."""
        from tests.interop.slatedb_databases import EVERYTHING

        iterator = await self._reader.scan_prefix(prefix.encode(), EVERYTHING)
        found = {}
        while (row := await iterator.next()) is not None:
            found[bytes(row.key).decode()] = bytes(row.value)
        return found


async def collect_garbage(url: str) -> None:
    """Run SlateDB's garbage collector once, with the age that the daemon has, too."""
    from slatedb import uniffi as slate

    from tests.soak.clients.wheel import MIN_AGE_MS, open_store, root_of

    each = slate.GarbageCollectorDirectoryOptions(interval_ms=None, min_age_ms=MIN_AGE_MS, dry_run=False)
    options = slate.GarbageCollectorOptions(
        manifest_options=each,
        wal_options=each,
        wal_fence_options=None,
        compacted_options=each,
        compactions_options=each,
        detach_options=None,
    )
    await slate.AdminBuilder(root_of(url), open_store(url)).build().run_gc_once(options)
