"""Shale, and SlateDB, RocksDB and LMDB from Python, with one small interface, for benchmarks in one run.

A process imports only the engine that it opens: its start and its memory are measured, too.
"""

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

KEYS = 40_000
L0_COUNT = 4
_WORD = (1 << 64) - 1


def key_of(number: int) -> bytes:
    """Return the 16 bytes of a key; consecutive numbers have uniformly random, different keys."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
    return b"%016x" % (mixed ^ mixed >> 31)


def key_in_order(number: int) -> bytes:
    """Return a key of 16 bytes; consecutive numbers are neighbours, as in tables of rows by their numbers."""
    return b"%016d" % number


VALUE = bytes(range(100))


class Peer(Protocol):
    """One engine on one fresh directory.  Every method returns seconds."""

    name: str

    async def open(self, directory: Path) -> None: ...
    async def put(self, keys: Sequence[bytes]) -> float: ...
    async def batch(self, keys: Sequence[bytes]) -> float: ...
    async def flush(self) -> None: ...
    async def settle(self) -> None: ...
    async def get(self, keys: Sequence[bytes]) -> float: ...
    async def get_many(self, keys: Sequence[bytes]) -> float: ...
    async def scan(self) -> tuple[float, int]: ...
    async def scan_some(self, starts: Sequence[bytes], count: int) -> float: ...
    async def close(self) -> None: ...


class Shale:
    """Ours, on the directory store."""

    name = "shale"

    async def open(self, directory: Path, **options: Any) -> None:
        import shale

        self.db = await shale.Db.open(f"file://{directory}/db", **options)

    async def put(self, keys: Sequence[bytes]) -> float:
        put, start = self.db.put, perf_counter()
        for key in keys:
            await put(key, VALUE)
        return perf_counter() - start

    async def batch(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        async with self.db.batch() as batch:
            for key in keys:
                batch.put(key, VALUE)
        return perf_counter() - start

    async def flush(self) -> None:
        await self.db.flush("memtable")

    async def settle(self) -> None:
        """Finish background work that would disturb the next peer."""
        await self.db.flush("wal")

    async def get(self, keys: Sequence[bytes]) -> float:
        get, start = self.db.get, perf_counter()
        for key in keys:
            await get(key)
        return perf_counter() - start

    async def get_many(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        await self.db.get_many(keys)
        return perf_counter() - start

    async def scan(self) -> tuple[float, int]:
        start, count = perf_counter(), 0
        async for rows in self.db.scan().batches(1024):
            for _ in rows:
                count += 1
        return perf_counter() - start, count

    async def scan_items(self) -> tuple[float, int]:
        """Scan keys and values only, the columns of RocksDB."""
        start, count = perf_counter(), 0
        async for items in self.db.scan().items(1024):
            for _ in items:
                count += 1
        return perf_counter() - start, count

    async def scan_reverse(self) -> tuple[float, int]:
        """From the end."""
        start, count = perf_counter(), 0
        async for items in self.db.scan(reverse=True).items(1024):
            for _ in items:
                count += 1
        return perf_counter() - start, count

    async def scan_to_arrow(self) -> tuple[float, int]:
        """All five columns."""
        start = perf_counter()
        table = await self.db.scan().to_arrow()
        return perf_counter() - start, table.num_rows

    async def scan_to_arrow_batches(self) -> tuple[float, int]:
        """All five columns, of which no more than a batch is held."""
        start, count = perf_counter(), 0
        async for batch in self.db.scan().arrow_batches():
            count += batch.num_rows
        return perf_counter() - start, count

    async def scan_some(self, starts: Sequence[bytes], count: int) -> float:
        start = perf_counter()
        for key in starts:
            rows = await self.db.scan(start=key, limit=count).next_batch(count)
            assert len(rows) == count
        return perf_counter() - start

    async def close(self) -> None:
        await self.db.close()


class Wheel:
    """The ``slatedb`` package on a local folder, without its compactor and collector."""

    name = "slatedb"

    async def open(self, directory: Path) -> None:
        from slatedb import uniffi

        self.slate = uniffi
        settings = self.slate.Settings.default()
        for name in ("compactor_options", "garbage_collector_options"):
            settings.set(name, json.dumps(None))
        builder = self.slate.DbBuilder(str(directory / "db").lstrip("/"), self.slate.ObjectStore.resolve("file:///"))
        builder.with_settings(settings)
        self.db = await builder.build()
        self.options = self.slate.WriteOptions()

    async def put(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        for key in keys:
            await self.db.put(key, VALUE)
        return perf_counter() - start

    async def batch(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        batch = self.slate.WriteBatch()
        for key in keys:
            batch.put(key, VALUE)
        await self.db.write(batch)
        return perf_counter() - start

    async def flush(self) -> None:
        await self.db.flush_with_options(self.slate.FlushOptions(flush_type=self.slate.FlushType.MEM_TABLE))

    async def settle(self) -> None:
        """See ``Shale``."""
        await self.db.flush_with_options(self.slate.FlushOptions(flush_type=self.slate.FlushType.WAL))

    async def get(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        for key in keys:
            await self.db.get(key)
        return perf_counter() - start

    async def get_many(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        await asyncio.gather(*(self.db.get(key) for key in keys))
        return perf_counter() - start

    async def scan(self) -> tuple[float, int]:
        everything = self.slate.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        start, count = perf_counter(), 0
        iterator = await self.db.scan(everything)
        while await iterator.next() is not None:
            count += 1
        return perf_counter() - start, count

    async def scan_some(self, starts: Sequence[bytes], count: int) -> float:
        start = perf_counter()
        for key in starts:
            iterator = await self.db.scan(
                self.slate.KeyRange(start=key, start_inclusive=True, end=None, end_inclusive=False)
            )
            for _ in range(count):
                assert await iterator.next() is not None
        return perf_counter() - start

    async def scan_in_batches(self) -> tuple[float, int]:
        everything = self.slate.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        start, count = perf_counter(), 0
        iterator = await self.db.scan(everything)
        while rows := await iterator.next_batch(1024):
            count += len(rows)
        return perf_counter() - start, count

    async def close(self) -> None:
        await self.db.shutdown()


class Rocks:
    """RocksDB through ``rocksdict``: the fastest embedded store that Python has."""

    name = "rocksdict"

    async def open(self, directory: Path) -> None:
        from rocksdict import AccessType, Options, Rdict, WriteBatch

        self.new_batch = WriteBatch
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_disable_auto_compactions(True)
        self.db: Any = Rdict(str(directory / "rocks"), options, access_type=AccessType.read_write())

    async def put(self, keys: Sequence[bytes]) -> float:
        put, start = self.db.put, perf_counter()
        for key in keys:
            put(key, VALUE)
        return perf_counter() - start

    async def batch(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        batch = self.new_batch(raw_mode=True)
        for key in keys:
            batch.put(key, VALUE)
        self.db.write(batch)
        return perf_counter() - start

    async def flush(self) -> None:
        self.db.flush()

    async def settle(self) -> None:
        """RocksDB writes its log before a write returns."""

    async def get(self, keys: Sequence[bytes]) -> float:
        get, start = self.db.get, perf_counter()
        for key in keys:
            get(key)
        return perf_counter() - start

    async def get_many(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        self.db.get(list(keys))
        return perf_counter() - start

    async def scan(self) -> tuple[float, int]:
        start, count = perf_counter(), 0
        for _ in self.db.items():
            count += 1
        return perf_counter() - start, count

    async def scan_some(self, starts: Sequence[bytes], count: int) -> float:
        start = perf_counter()
        for key in starts:
            assert sum(1 for _ in islice(self.db.items(from_key=key), count)) == count
        return perf_counter() - start

    async def close(self) -> None:
        self.db.close()


class Lmdb:
    """LMDB, a B+ tree in mapped memory: the quickest reader that Python has, an upper anchor.

    As RocksDB here, it does not wait for the disk before ``flush``.  Reads of one call share one transaction.
    """

    name = "lmdb"

    async def open(self, directory: Path) -> None:
        import lmdb

        self.db = lmdb.open(str(directory / "lmdb"), map_size=4 << 30, sync=False)

    async def put(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        for key in keys:
            with self.db.begin(write=True) as txn:
                txn.put(key, VALUE)
        return perf_counter() - start

    async def batch(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        with self.db.begin(write=True) as txn:
            for key in keys:
                txn.put(key, VALUE)
        return perf_counter() - start

    async def flush(self) -> None:
        self.db.sync(True)

    async def settle(self) -> None:
        """It has no work in the background."""

    async def get(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        with self.db.begin() as txn:
            get = txn.get
            for key in keys:
                get(key)
        return perf_counter() - start

    async def get_many(self, keys: Sequence[bytes]) -> float:
        start = perf_counter()
        with self.db.begin() as txn:
            txn.cursor().getmulti(keys)
        return perf_counter() - start

    async def scan(self) -> tuple[float, int]:
        start, count = perf_counter(), 0
        with self.db.begin() as txn:
            for _ in txn.cursor():
                count += 1
        return perf_counter() - start, count

    async def scan_some(self, starts: Sequence[bytes], count: int) -> float:
        start = perf_counter()
        with self.db.begin() as txn:
            cursor = txn.cursor()
            for key in starts:
                cursor.set_range(key)
                assert sum(1 for _ in islice(cursor.iternext(), count)) == count
        return perf_counter() - start

    async def close(self) -> None:
        self.db.close()


PEERS: tuple[type[Peer], ...] = (Shale, Wheel, Rocks, Lmdb)
