"""Range reads of SSTs through a disk cache: it reads whole parts from the store and keeps them on disk."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from shale.concurrency.background_tasks import BackgroundTasks
from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.core.open_file import OpenFile
from shale.env import Env
from shale.sst.disk_cache import DiskCache, object_name, store_parts
from shale.sst.disk_part import PartRange, head_size
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject
from shale.telemetry.metrics import Metrics

Fetch = Callable[[int, int], Awaitable[memoryview]]
"""Reads bytes ``[start, end)`` of one object from the store."""


_PRELOAD_BYTES = 8 << 20
"""Size of one read of a preload."""
UNWRITTEN_BYTES_MAX = 64 << 20
"""Limit of parts that wait to be written; above it new parts are not kept."""


class _Pending:
    """Parts ``[first, last)`` that are being read from the store or written to disk; other reads wait for them.

    ``data`` stays ``None`` if the read fails.
    """

    __slots__ = ("data", "done", "first", "is_forgotten", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.is_forgotten = False
        self.done = anyio.Event()
        self.data: memoryview | None = None


class PartReader:
    """The SSTs of one database.  Belongs to one event loop; the cache may be shared.

    Args:
        cache: the parts on disk.
        store_url: identifies the store in the cache.
        env: reads and writes files in threads.
        background: writes parts to disk; while it is closed, and without it, reads wait for the write.
    """

    def __init__(self, cache: DiskCache, store_url: str, env: Env, background: BackgroundTasks | None = None) -> None:
        self.hits = 0
        self.accesses = 0
        self._cache = cache
        self._store_url = store_url
        self._env = env
        self._step = cache.options.part_bytes
        self._pending: dict[tuple[bytes, int], _Pending] = {}
        self._unwritten_bytes = 0
        self._background = background if background is not None else BackgroundTasks()

    @property
    def part_bytes(self) -> int:
        """The size of a part."""
        return self._step

    def open_part(self, slot: SstSlot, part: int) -> LocalObject | None:
        """Open a part on disk for reads that do not wait, which count as hits; ``None`` if that is impossible.

        Reads check no checksums of the part: each block has its own.
        """
        size = slot.sst.info.sections_end
        start = part * self._step
        whole = PartRange(object_name(self._store_url, slot.path), part, min(self._step, size - start), 0, 0)
        opened = self._cache.open_part(whole)
        return None if opened is None else _OpenPart(self, self._cache, whole, opened)

    @property
    def max_open_files(self) -> int:
        """How many parts a database keeps open."""
        return self._cache.options.max_open_files

    @property
    def pending_parts(self) -> int:
        """How many parts are being read or wait to be written to disk."""
        return len(self._pending)

    async def read(self, key: str, start: int, end: int, size: int, fetch: Fetch) -> memoryview:
        """Return bytes ``[start, end)`` of an object whose first ``size`` bytes are cached.

        Args:
            key: the object.
            start, end, size: bytes.
            fetch: reads from the store.

        Raises:
            ShaleError: an error of ``fetch``; the disk never causes one.
        """
        name = object_name(self._store_url, key)
        wanted = self._ranges(name, start, end, size)
        pieces = await self._env.cpu.run(lambda: [self._cache.load(part) for part in wanted])
        read = _Read(fetch, wanted, dict(zip((part.part for part in wanted), pieces, strict=True)))
        missing = [part.part for part in wanted if read.pieces[part.part] is None]
        self.accesses += len(wanted)
        self.hits += len(wanted) - len(missing)
        await gather([partial(self._fetch_parts, read, first, last) for first, last in _runs(missing)])
        return memoryview(b"".join(piece for piece in read.pieces.values() if piece is not None))

    async def preload(self, key: str, size: int, fetch: Fetch) -> None:
        """Write the parts of an object's first ``size`` bytes that are not on disk, one read after the other."""
        name = object_name(self._store_url, key)
        parts = range(-(-size // self._step))
        missing = await self._env.cpu.run(lambda: [part for part in parts if not self._cache.has(name, part)])
        at_once = max(1, _PRELOAD_BYTES // self._step)
        for first, last in _runs(missing):
            for begin in range(first, last, at_once):
                end = min(begin + at_once, last)
                data = await fetch(begin * self._step, min(end * self._step, size))
                await self._env.cpu.run(partial(self._store, name, begin, data))

    def forget(self, key: str) -> None:
        """Drop a damaged object: the store may hold the right bytes by now."""
        name = object_name(self._store_url, key)
        for pending in {each for (of, _), each in self._pending.items() if of == name and each.done.is_set()}:
            pending.is_forgotten = True
            self._remove(name, pending)
        self._cache.drop_object(name)

    def export(self, metrics: Metrics) -> None:
        """Export the counters to these metrics."""
        hits = metrics.counter("slatedb_object_store_cache_part_hits_total")
        accesses = metrics.counter("slatedb_object_store_cache_part_accesses_total")
        evicted_keys = metrics.counter("slatedb_object_store_cache_evicted_keys_total")
        evicted_bytes = metrics.counter("slatedb_object_store_cache_evicted_bytes_total")
        keys = metrics.gauge("slatedb_object_store_cache_keys")
        size_bytes = metrics.gauge("slatedb_object_store_cache_bytes")
        cache = self._cache
        counters = (hits, accesses, evicted_keys, evicted_bytes)
        shown = [0, 0, cache.evicted_keys, cache.evicted_bytes]

        def refresh() -> None:
            now = (self.hits, self.accesses, cache.evicted_keys, cache.evicted_bytes)
            for place, (counter, value) in enumerate(zip(counters, now, strict=True)):
                counter.inc(value - shown[place])
                shown[place] = value
            keys.set(cache.keys)
            size_bytes.set(cache.size_bytes)

        metrics.before_scrape(refresh)

    def _ranges(self, name: bytes, start: int, end: int, size: int) -> list[PartRange]:
        step = self._step
        return [
            PartRange(
                name,
                part,
                length=min(step, size - part * step),
                start=max(start - part * step, 0),
                end=min(end - part * step, step),
            )
            for part in range(start // step, -(-end // step))
        ]

    async def _fetch_parts(self, read: "_Read", first: int, last: int) -> None:
        """Fetch the adjacent parts ``[first, last)`` and take their pieces."""
        name = read.wanted[0].name
        at = first
        while at < last:
            pending = self._pending.get((name, at))
            if pending is None:
                end = next((part for part in range(at, last) if (name, part) in self._pending), last)
                pending = await self._start(read, at, end)
            else:
                await pending.done.wait()
            if pending.data is not None:  # otherwise that read was cancelled or failed: read the parts here
                at = read.take(pending.data, pending.first, at, self._step)

    async def _start(self, read: "_Read", first: int, last: int) -> _Pending:
        pending = _Pending(first, last)
        known = {part.part: part for part in read.wanted}
        name, end = read.wanted[0].name, (last - 1) * self._step + known[last - 1].length
        for part in range(first, last):
            self._pending[name, part] = pending
        try:
            data = pending.data = await read.fetch(first * self._step, end)
        finally:
            pending.done.set()
            if pending.data is None:
                self._remove(name, pending)
        if not self._background.is_open:
            await self._write(name, pending, 0)
        elif self._unwritten_bytes + len(data) > UNWRITTEN_BYTES_MAX:
            self._remove(name, pending)
        else:
            self._unwritten_bytes += len(data)
            self._background.start(partial(self._write, name, pending, len(data)), name="disk_cache.write")
        return pending

    async def _write(self, name: bytes, pending: _Pending, unwritten_bytes: int) -> None:
        """Write parts to disk; until then reads find them in memory."""
        assert pending.data is not None
        try:
            if not pending.is_forgotten:
                await self._env.cpu.run(partial(self._store, name, pending.first, pending.data))
            if pending.is_forgotten:
                self._cache.drop_object(name)
        finally:
            self._unwritten_bytes -= unwritten_bytes
            self._remove(name, pending)

    def _remove(self, name: bytes, pending: _Pending) -> None:
        for part in range(pending.first, pending.last):
            if self._pending.get((name, part)) is pending:
                del self._pending[name, part]

    def _store(self, name: bytes, first: int, data: BytesLike) -> None:
        store_parts(self._cache, name, first, data)


class _OpenPart:
    """An open part on disk."""

    __slots__ = ("_cache", "_file", "_head_bytes", "_part", "_reader")

    def __init__(self, reader: PartReader, cache: DiskCache, part: PartRange, file: OpenFile) -> None:
        self._reader = reader
        self._cache = cache
        self._part = cache.name_of(part)
        self._head_bytes = head_size(part.length)
        self._file = file

    def read_into(self, buffer: memoryview, start: int) -> int:
        """See ``LocalObject``."""
        size = self._file.read_into(buffer, self._head_bytes + start)
        if size == len(buffer):
            self._reader.accesses += 1
            self._reader.hits += 1
            self._cache.note_use(self._part)
        return size


class _Read:
    """A read under way: the wanted ranges of parts, and the pieces read so far."""

    __slots__ = ("fetch", "pieces", "wanted")

    def __init__(self, fetch: Fetch, wanted: Sequence[PartRange], pieces: dict[int, BytesLike | None]) -> None:
        self.fetch = fetch
        self.wanted = wanted
        self.pieces = pieces

    def take(self, data: memoryview, first: int, begin: int, step: int) -> int:
        """Take the pieces from part ``begin`` on out of the parts from ``first`` on; return the part after them."""
        end = first + -(-len(data) // step)
        for part in self.wanted:
            if begin <= part.part < end:
                base = (part.part - first) * step
                self.pieces[part.part] = data[base + part.start : base + part.end]
        return end


def _runs(parts: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges ``[first, last)``."""
    runs: list[tuple[int, int]] = []
    for part in parts:
        if runs and runs[-1][1] == part:
            runs[-1] = (runs[-1][0], part + 1)
        else:
            runs.append((part, part + 1))
    return runs
