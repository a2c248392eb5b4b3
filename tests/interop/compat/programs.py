"""One program, run by SlateDB's package and by Shale: all observations must be equal.

A program is a list of steps, drawn from a seed.  A step is the name of a method of ``Side`` and its arguments; handles
(snapshots, transactions, iterators) are named by numbers.  What a step sees is plain data, errors by their kind.

Nothing runs on its own: flushes are steps, there is no compactor, and lifetimes end long ago or far ahead.  So both
sides pass through the same states, and sequence numbers can be compared as they are.  In a busy harness everything runs
by itself besides, and only what does not depend on that is compared.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = tuple[Any, ...]
Outcome = tuple[str, Any]

PATH = "side/by/side"
PREFIXES = (b"aaa", b"aab", b"bbb", b"zzz")
SUFFIXES = (b"", b"-1", b"-2", b"-\xff")
NOT_COMMITTED = (1 << 64) - 1
PAST_MS, FUTURE_MS = 1_000, 4_102_444_800_000
WRITES = ("put", "delete", "merge", "batch", "commit")
SETTINGS = {
    "flush_interval": None,
    "compactor_options": None,
    "garbage_collector_options": None,
    "l0_max_ssts": 10_000,
    "l0_max_ssts_per_key": 10_000,
}


@dataclass(frozen=True)
class Harness:
    """The options with which a database is opened."""

    merges: bool = True
    segments: bool = False
    wal: bool = True
    busy: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


BUSY = {
    "flush_interval": "005ms",
    "manifest_poll_interval": "050ms",
    "l0_max_ssts": 6,
    "l0_max_ssts_per_key": 6,
    "compactor_options": {
        "poll_interval": "020ms",
        "manifest_update_timeout": "300s",
        "max_concurrent_compactions": 2,
        "commit_compacted_interval": "020ms",
        "worker_heartbeat_timeout": "30s",
        "worker": {
            "max_concurrent_compactions": 2,
            "compactions_poll_interval": "020ms",
            "heartbeat_interval": "10s",
            "max_sst_size": 1 << 20,
            "max_fetch_tasks": 2,
            "bytes_to_fetch": 1 << 20,
            "max_subcompactions": 2,
            "min_filter_keys": 0,
        },
    },
}
"""Settings of a busy harness: more flushes than L0 has room for, so compactions have to keep up."""


def memory_store(api: Any, _folder: Path) -> Any:
    """Return a store in memory."""
    return api.ObjectStore.resolve("memory:///")


def file_store(api: Any, folder: Path) -> Any:
    """Return a store in a folder."""
    builder = api.ObjectStoreBuilder(api.ObjectStoreType.LOCAL)
    builder.with_config("local_path", str(folder))
    return builder.build()


class Side:
    """One of the two packages with a database, and the open handles of the program."""

    def __init__(self, api: Any, store: Any, harness: Harness) -> None:
        self.api = api
        self.store = store
        self.harness = harness
        self.db: Any = None
        self.snapshots: dict[int, Any] = {}
        self.transactions: dict[int, Any] = {}
        self.iterators: dict[int, Any] = {}

    async def run(self, step: Step) -> Outcome:
        """Run the steps and return the observations."""
        name, *arguments = step
        try:
            return "ok", await getattr(self, name)(*arguments)
        except self.api.Error as error:
            return "error", (type(error).__name__, getattr(getattr(error, "reason", None), "name", None))
        except (ValueError, TypeError, KeyError) as error:
            return "raised", type(error).__name__

    async def open(self) -> None:
        """Open the database, and create it if it does not exist."""
        builder = self.api.DbBuilder(PATH, self.store)
        settings = self.api.Settings.default()
        for key, value in {**SETTINGS, "wal_enabled": self.harness.wal, **self.harness.settings}.items():
            settings.set(key, json.dumps(value))
        builder.with_settings(settings)
        self._configure(builder)
        self.db = await builder.build()

    async def close(self, flush: str | None) -> None:
        """Close the database after the given flush; older handles become invalid."""
        self.snapshots.clear()
        self.transactions.clear()
        self.iterators.clear()
        kind = None if flush is None else self.api.FlushType[flush]
        await self.db.shutdown_with_options(self.api.CloseOptions(flush_type=kind))

    async def reopen(self, flush: str | None) -> Any:
        """Close and reopen the database."""
        await self.close(flush)
        await self.open()
        return None if self.harness.busy else await self.status()

    async def status(self) -> Any:
        """Read the status of the writer."""
        status = self.db.status()
        reason = None if status.close_reason is None else status.close_reason.name
        return status.durable_seq, reason, [bytes(each.prefix) for each in status.segments]

    async def put(self, key: bytes, value: bytes, ttl: Step, seq: int) -> int:
        """Put a value."""
        options = self.api.PutOptions(ttl=self._ttl(ttl)), self.api.WriteOptions(seqnum=seq)
        return (await self.db.put_with_options(key, value, *options)).seqnum()

    async def delete(self, key: bytes) -> int:
        """Delete a key."""
        return (await self.db.delete(key)).seqnum()

    async def merge(self, key: bytes, operand: bytes, ttl: Step) -> int:
        """Write a merge operand."""
        options = self.api.MergeOptions(ttl=self._ttl(ttl)), self.api.WriteOptions()
        return (await self.db.merge_with_options(key, operand, *options)).seqnum()

    async def batch(self, writes: list[Step], seq: int) -> int:
        """Write several operations in one commit."""
        batch = self.api.WriteBatch()
        for kind, key, value, ttl in writes:
            self._add(batch, kind, key, value, ttl)
        options = self.api.WriteOptions(seqnum=seq)
        return (await self.db.write_with_options(batch, options)).seqnum()

    async def flush(self, kind: str | None) -> Any:
        """Flush to the WAL or to L0."""
        if kind is None:
            await self.db.flush()
        else:
            await self.db.flush_with_options(self.api.FlushOptions(flush_type=self.api.FlushType[kind]))
        return None if self.harness.busy else await self.status()

    async def manifest(self) -> Any:
        """Return the fields of the manifest that do not depend on timing."""
        found = await self.api.AdminBuilder(PATH, self.store).build().read_manifest(None)
        segments = [(bytes(each.prefix), len(each.l0)) for each in found.segments]
        return found.last_l0_seq, found.writer_epoch, len(found.l0), segments

    async def get(self, place: Step, key: bytes, level: str) -> Any:
        """Look up a row."""
        options = self.api.ReadOptions(
            durability_filter=self.api.DurabilityLevel[level], dirty=False, cache_blocks=True
        )
        reads = self._place(place)
        row = await reads.get_key_value_with_options(key, options)
        value = await reads.get(key) if level == "MEMORY" else None
        return None if row is None else self._row(row), value

    async def scan(self, place: Step, bounds: Step, prefix: bytes | None, order: str, level: str) -> Any:
        """Return all rows of a range."""
        iterator = await self._scan(place, bounds, prefix, order, level)
        return [self._row(row) for row in await iterator.next_batch(1000)]

    async def iterate(self, number: int, place: Step, bounds: Step, prefix: bytes | None, order: str) -> None:
        """Start a scan that later steps continue."""
        self.iterators[number] = await self._scan(place, bounds, prefix, order, "MEMORY")

    async def advance(self, number: int, rows: int) -> Any:
        """Return the next rows of a scan; a single row is requested with the method for one row."""
        if rows == 1:
            row = await self.iterators[number].next()
            return None if row is None else self._row(row)
        return [self._row(row) for row in await self.iterators[number].next_batch(rows)]

    async def seek(self, number: int, key: bytes) -> Any:
        """Seek in a scan, and return the next row."""
        await self.iterators[number].seek(key)
        return await self.advance(number, 1)

    async def snapshot(self, number: int) -> None:
        """Create a snapshot."""
        self.snapshots[number] = await self.db.snapshot()

    async def forget(self, number: int) -> None:
        """Release a snapshot."""
        del self.snapshots[number]

    async def begin(self, number: int, level: str) -> int:
        """Begin a transaction."""
        self.transactions[number] = await self.db.begin(self.api.IsolationLevel[level])
        return self.transactions[number].seqnum()

    async def write_in(self, number: int, kind: str, key: bytes, value: bytes, ttl: Step) -> None:
        """Write in a transaction."""
        transaction = self.transactions[number]
        if kind == "put":
            await transaction.put_with_options(key, value, self.api.PutOptions(ttl=self._ttl(ttl)))
        elif kind == "merge":
            await transaction.merge_with_options(key, value, self.api.MergeOptions(ttl=self._ttl(ttl)))
        else:
            await transaction.delete(key)

    async def mark(self, number: int, kind: str, keys: list[bytes]) -> None:
        """Mark keys as read, or as not written, in a transaction."""
        await getattr(self.transactions[number], kind)(keys)

    async def commit(self, number: int) -> int | None:
        """Commit a transaction."""
        handle = await self.transactions[number].commit()
        return None if handle is None else handle.seqnum()

    async def rollback(self, number: int) -> None:
        """Roll back a transaction."""
        await self.transactions[number].rollback()

    async def read_beside(self, mode: str) -> Any:
        """Return all rows that a newly opened reader sees."""
        builder = self.api.DbReaderBuilder(PATH, self.store)
        builder.with_reader_mode(getattr(self.api.ReaderMode, mode)())
        self._configure(builder)
        reader = await builder.build()
        try:
            iterator = await reader.scan(self._range((None, True, None, True)))
            return [self._row(row) for row in await iterator.next_batch(1000)]
        finally:
            await reader.shutdown()

    async def wal(self) -> Any:
        """Return the rows of the WAL, file by file."""
        reader = self.api.SlateDbWalReader(PATH, self.store)
        last = await reader.last_wal_file_id(0)
        iterator = await reader.iterator(1)
        files = []
        for _ in range(last):
            rows = (await iterator.next()).rows
            files.append([(row.kind.name, bytes(row.key), row.value, row.seq) for row in rows])
        return files

    async def _scan(self, place: Step, bounds: Step, prefix: bytes | None, order: str, level: str) -> Any:
        options = self.api.ScanOptions(
            durability_filter=self.api.DurabilityLevel[level],
            dirty=False,
            read_ahead_bytes=1,
            cache_blocks=False,
            max_fetch_tasks=1,
            order=self.api.IterationOrder[order],
        )
        reads, key_range = self._place(place), self._range(bounds)
        if prefix is None:
            return await reads.scan_with_options(key_range, options)
        return await reads.scan_prefix_with_options(prefix, key_range, options)

    def _place(self, place: Step) -> Any:
        kind, number = place
        if kind == "db":
            return self.db
        return (self.snapshots if kind == "snapshot" else self.transactions)[number]

    def _configure(self, builder: Any) -> None:
        if self.harness.merges:
            builder.with_merge_operator(_concatenate(self.api))
        if self.harness.segments:
            builder.with_segment_extractor(_three_bytes(self.api))

    def _add(self, batch: Any, kind: str, key: bytes, value: bytes, ttl: Step) -> None:
        if kind == "put":
            batch.put_with_options(key, value, self.api.PutOptions(ttl=self._ttl(ttl)))
        elif kind == "merge":
            batch.merge_with_options(key, value, self.api.MergeOptions(ttl=self._ttl(ttl)))
        else:
            batch.delete(key)

    def _ttl(self, ttl: Step) -> Any:
        name, *values = ttl
        return getattr(self.api.Ttl, name)(*values)

    def _range(self, bounds: Step) -> Any:
        start, start_inclusive, end, end_inclusive = bounds
        return self.api.KeyRange(start=start, start_inclusive=start_inclusive, end=end, end_inclusive=end_inclusive)

    @staticmethod
    def _row(row: Any) -> Step:
        """Return a row without times that depend on the clock; a remaining lifetime is in whole minutes."""
        expire = row.expire_ts
        if expire is not None and expire not in (PAST_MS, FUTURE_MS):
            expire = ("minutes", round((expire - row.create_ts) / 60_000))
        # Of a merge over a deletion that a transaction has not committed, SlateDB's lookups and scans tell two times.
        has_time = row.seq == NOT_COMMITTED or row.create_ts != 0
        return bytes(row.key), bytes(row.value), row.seq, has_time, expire


def _concatenate(api: Any) -> Any:
    class Concatenate(api.MergeOperator):  # type: ignore[misc]
        def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
            return (existing_value or b"") + operand

    return Concatenate()


def _three_bytes(api: Any) -> Any:
    class ThreeBytes(api.PrefixExtractor):  # type: ignore[misc]
        def name(self) -> str:
            return "three"

        def prefix_len(self, target: Any) -> int | None:
            data = target.key if target.is_point() else target.prefix
            return 3 if len(data) >= 3 else None

    return ThreeBytes()


class Program:
    """A generator of steps, most of them valid together."""

    def __init__(self, seed: int, harness: Harness) -> None:
        self._rng = random.Random(seed)
        self._harness = harness
        self._names = 0
        self._seekable: list[int] = []
        self._live: dict[str, list[int]] = {"snapshot": [], "transaction": [], "iterator": []}
        self._weights: dict[str, int] = {
            "put": 20, "delete": 6, "merge": 10 if harness.merges else 2, "batch": 8, "flush": 6, "manifest": 1,
            "status": 2, "get": 14, "scan": 12, "iterate": 4, "advance": 8, "seek": 12, "snapshot": 3, "forget": 2,
            "begin": 6, "write_in": 10, "mark": 2, "commit": 5, "rollback": 1, "read_beside": 2,
            "wal": 1 if harness.wal else 0, "reopen": 2,
        }  # fmt: skip
        if harness.busy:
            self._weights |= {"flush": 14, "manifest": 0, "status": 0, "wal": 0, "read_beside": 0}

    def steps(self, count: int) -> Iterator[Step]:
        """Return the number of steps after the first open."""
        yield ("open",)
        names, weights = list(self._weights), list(self._weights.values())
        for _ in range(count):
            draw: Callable[[], Step | None] = getattr(self, f"_{self._rng.choices(names, weights)[0]}")
            step = draw()
            if step is not None:
                if step[0] in WRITES:
                    self._seekable.clear()
                yield step
        yield ("scan", ("db", 0), (None, True, None, True), None, "ASCENDING", "MEMORY")
        yield ("reopen", "WAL" if self._harness.wal else "MEM_TABLE")
        yield ("scan", ("db", 0), (None, True, None, True), None, "DESCENDING", "MEMORY")
        yield ("close", "MEM_TABLE")
        yield ("get", ("db", 0), b"aaa", "MEMORY")

    def _key(self) -> bytes:
        if self._rng.random() < 0.01:
            return b"" if self._rng.random() < 0.5 else b"x"
        return self._rng.choice(PREFIXES) + self._rng.choice(SUFFIXES)

    def _value(self) -> bytes:
        return b"%d" % self._rng.randrange(1000) * self._rng.choice((0, 1, 1, 1, 40))

    def _ttl(self) -> Step:
        if self._rng.random() < 0.7:
            return ("DEFAULT",)
        at = "EXPIRE_AT_MILLIS"
        past = FUTURE_MS if self._harness.busy else PAST_MS
        return self._rng.choice((("NO_EXPIRY",), ("EXPIRE_AFTER_MILLIS", 10**12), (at, FUTURE_MS), (at, past)))

    def _bounds(self, *, within_prefix: bool = False) -> Step:
        # An end right at the prefix is a range without keys, over which SlateDB panics.
        ends = SUFFIXES[1:] if within_prefix else tuple(prefix + suffix for prefix in PREFIXES for suffix in SUFFIXES)
        start, end = (self._rng.choice(ends) if self._rng.random() < 0.6 else None for _ in range(2))
        if start is not None and end is not None and start > end and self._rng.random() < 0.9:
            start, end = end, start
        return start, self._rng.random() < 0.5, end, self._rng.random() < 0.5

    def _level(self) -> str:
        return "MEMORY" if self._harness.busy else self._rng.choice(("MEMORY", "MEMORY", "REMOTE"))

    def _some_place(self) -> Step:
        kind = self._rng.choice(("db", "db", "snapshot", "transaction"))
        if kind == "db" or not self._live[kind]:
            return "db", 0
        return kind, self._rng.choice(self._live[kind])

    def _new(self, kind: str) -> int:
        self._names += 1
        self._live[kind].append(self._names)
        return self._names

    def _one(self, kind: str) -> int | None:
        return self._rng.choice(self._live[kind]) if self._live[kind] else None

    def _range_of(self) -> tuple[Step, bytes | None]:
        if self._rng.random() < 0.4:
            prefix = self._rng.choice((*PREFIXES, b"a", b"", b"aaa-", b"q"))
            return self._bounds(within_prefix=True), prefix
        return self._bounds(), None

    def _put(self) -> Step:
        seq = self._rng.choice((0,) * 40 + (1, 10**6 + self._rng.randrange(10**9)))
        return "put", self._key(), self._value(), self._ttl(), seq

    def _delete(self) -> Step:
        return "delete", self._key()

    def _merge(self) -> Step:
        return "merge", self._key(), self._value(), self._ttl()

    def _batch(self) -> Step:
        kinds = ("put", "put", "delete", "merge") if self._harness.merges else ("put", "put", "delete")
        ttl = self._ttl()
        writes = [
            (self._rng.choice(kinds), self._key(), self._value(), ttl if self._rng.random() < 0.9 else self._ttl())
            for _ in range(self._rng.randrange(0, 6))
        ]
        return "batch", writes, self._rng.choice((0,) * 30 + (2,))

    def _flush(self) -> Step:
        return "flush", self._rng.choice((None, "WAL", "MEM_TABLE", "MEM_TABLE"))

    def _manifest(self) -> Step:
        return ("manifest",)

    def _status(self) -> Step:
        return ("status",)

    def _get(self) -> Step:
        return "get", self._some_place(), self._key(), self._level()

    def _scan(self) -> Step:
        bounds, prefix = self._range_of()
        order = self._rng.choice(("ASCENDING", "DESCENDING"))
        return "scan", self._some_place(), bounds, prefix, order, self._level()

    def _iterate(self) -> Step:
        bounds, prefix = self._range_of()
        order = self._rng.choice(("ASCENDING", "ASCENDING", "DESCENDING"))
        number = self._new("iterator")
        self._seekable.append(number)
        return "iterate", number, self._some_place(), bounds, prefix, order

    def _advance(self) -> Step | None:
        number = self._one("iterator")
        return None if number is None else ("advance", number, self._rng.choice((0, 1, 1, 2, 3)))

    def _seek(self) -> Step | None:
        """Seek only if nothing was written since the scan began: SlateDB's scan then skips replaced rows."""
        return ("seek", self._rng.choice(self._seekable), self._key()) if self._seekable else None

    def _snapshot(self) -> Step:
        return "snapshot", self._new("snapshot")

    def _forget(self) -> Step | None:
        number = self._one("snapshot")
        if number is None:
            return None
        self._live["snapshot"].remove(number)
        return "forget", number

    def _begin(self) -> Step:
        return "begin", self._new("transaction"), self._rng.choice(("SNAPSHOT", "SERIALIZABLE_SNAPSHOT"))

    def _write_in(self) -> Step | None:
        number = self._one("transaction")
        if number is None:
            return None
        return (
            "write_in",
            number,
            self._rng.choice(("put", "put", "delete", "merge")),
            self._key(),
            self._value(),
            self._ttl(),
        )

    def _mark(self) -> Step | None:
        number = self._one("transaction")
        if number is None:
            return None
        return "mark", number, self._rng.choice(("mark_read", "unmark_write")), [self._key() for _ in range(2)]

    def _commit(self) -> Step | None:
        return self._ended("commit")

    def _rollback(self) -> Step | None:
        return self._ended("rollback")

    def _ended(self, how: str) -> Step | None:
        number = self._one("transaction")
        if number is None:
            return None
        if self._rng.random() < 0.8:
            self._live["transaction"].remove(number)
        return how, number

    def _read_beside(self) -> Step:
        return "read_beside", self._rng.choice(("FOLLOW_LATEST", "MANAGED_CHECKPOINT"))

    def _wal(self) -> Step:
        return ("wal",)

    def _reopen(self) -> Step:
        for live in (*self._live.values(), self._seekable):
            live.clear()
        kinds = ("MEM_TABLE", "WAL", None) if self._harness.wal else ("MEM_TABLE", None)
        return "reopen", self._rng.choice(kinds[:2] if self._harness.busy else kinds)
