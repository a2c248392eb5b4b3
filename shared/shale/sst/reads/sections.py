"""Reads ranges of bytes of SSTs through the disk cache, if there is one, and counts objects that are damaged."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from shale.concurrency.background_tasks import BackgroundTasks
from shale.env import Env
from shale.errors import CorruptionError, SstMissing
from shale.sst.reads.local_reader import local_reader_of, part_reader_of
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject, ObjectStore
from shale.telemetry import tracing
from shale.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from shale.sst.disk_cache import DiskCache
    from shale.telemetry.instruments import Counter

INLINE_BYTES_MAX = 256 << 10
"""Decoding up to this size takes about as long as handing it to a thread."""


class SectionReader:
    """The sections of one database, as they are stored.  Belongs to one event loop.

    Args:
        store: has what is not on disk.
        env: reads and writes files in threads.
        disk, background, on_read: see ``SstReaderOptions``.
    """

    def __init__(
        self,
        store: ObjectStore,
        env: Env,
        *,
        disk: "DiskCache | None",
        background: BackgroundTasks | None,
        on_read: Callable[[int], None] | None,
    ) -> None:
        self._store = store
        self._on_read = on_read
        self._corrupt: Counter | None = None
        self.parts = part_reader_of(disk, store, env, background)
        """Reads through the disk cache, if there is one."""
        self.local = local_reader_of(store, self.parts)
        """Reads that do not wait; ``None``: there are no files on this machine."""

    def export(self, metrics: Metrics) -> None:
        """Export what is counted."""
        if self.parts is not None:
            self.parts.export(metrics)
        self._corrupt = metrics.counter("slatedb_corruption_total", resource="compacted")

    async def read(self, slot: SstSlot, start: int, end: int) -> memoryview:
        """Return the bytes ``[start, end)`` of an SST.

        Raises:
            SstMissing: there is no such object.
        """
        if self.parts is None:
            return await self._fetch(slot, start, end)
        fetch = partial(self._fetch, slot)
        return await self.parts.read(slot.path, start, end, slot.sst.info.sections_end, fetch)

    def read_now(self, slot: SstSlot, start: int, end: int) -> memoryview | None:
        """Return bytes that the next call overwrites; ``None`` if that would wait."""
        if self.local is None or (data := self.local.read(slot, start, end)) is None:
            return None
        self._note_read(end - start)
        return data

    def open_whole(self, slot: SstSlot) -> LocalObject | None:
        """Open the file of an SST, whose reads are not noted; ``None``: there is none, or reads of it may wait."""
        if self.local is None or self.parts is not None or self._on_read is not None:
            return None
        return self.local.open(slot)

    @contextlib.contextmanager
    def step(self, slot: SstSlot, name: str) -> Iterator[None]:
        """Make a step of a trace, and count corruption."""
        with tracing.step(name, **{"slatedb.object": slot.path}), self.counting_corruption(slot):
            yield

    @contextlib.contextmanager
    def counting_corruption(self, slot: SstSlot) -> Iterator[None]:
        """Count an SST that is decoded and turns out to be malformed."""
        try:
            yield
        except SstMissing:
            raise  # GC may have deleted it; the caller finds out with a newer manifest and calls ``count_missing``
        except CorruptionError:
            slot.files.clear()
            self.count_corruption(slot.path)
            raise

    def count_corruption(self, path: str) -> None:
        """Count an SST that is malformed; the disk cache forgets it."""
        if self.parts is not None:
            self.parts.forget(path)
        self.count_missing()

    def count_missing(self) -> None:
        """Count an SST that is damaged, or missing although the newest manifest names it."""
        if self._corrupt is not None:
            self._corrupt.inc()

    async def _fetch(self, slot: SstSlot, start: int, end: int) -> memoryview:
        data = await self._store.get_range(slot.path, start, end)
        if data is None:
            raise SstMissing(str(slot.sst.id), slot.path)
        self._note_read(len(data))
        return data

    def _note_read(self, size: int) -> None:
        if self._on_read is not None:
            self._on_read(size)
