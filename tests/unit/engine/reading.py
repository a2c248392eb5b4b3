"""Small databases for tests of reading: SSTs in a memory store, and a store that notes its requests."""

from collections.abc import Sequence
from random import Random
from typing import Any

from shale.engine.read.read_point import ReadPoint
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.scan import Scan
from shale.env import Env, InlineCpu, SystemClock
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import EVERYTHING, Entry, KeyRange, Sst, SstView, Ulid

ROOT = "db"
PATHS = SstPaths(ROOT)


def quiet_env() -> Env:
    return Env(SystemClock(), Random(1), InlineCpu())


class RangeRecordingStore(MemoryStore):
    """A store that records every range read as ``(key, start, end)``."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int]] = []

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        self.reads.append((key, start, end))
        return await super().get_range(key, start, end)


class Shelf:
    """A store with SSTs in it, and the reader over them."""

    def __init__(self, *, cache_bytes: int = 1 << 20, **options: Any) -> None:
        self.store = RangeRecordingStore()
        self.options = SstOptions(**{"block_size_bytes": 1024, "min_filter_keys": 0, **options})
        self.metrics = Metrics()
        self.reader = self.new_reader(cache_bytes)
        self._count = 0

    def new_reader(self, cache_bytes: int) -> SstReader:
        return self.reader_with(BlockCache(cache_bytes))

    def reader_with(self, cache: BlockCache) -> SstReader:
        policies = self.options.filter_policies
        return SstReader(self.store, PATHS, cache, quiet_env(), self.metrics, filter_policies=policies)

    async def sst(self, entries: Sequence[Entry]) -> Sst:
        """Store rows, in order, as an SST."""
        data, info = build_sst(rows_from_entries(entries), self.options)
        self._count += 1
        sst = Sst(id=Ulid.from_parts(1_700_000_000_000 + self._count, self._count), info=info)
        await self.store.put(PATHS.key(sst.id), data)
        return sst

    async def view(self, entries: Sequence[Entry], visible: KeyRange | None = None) -> SstView:
        """Store rows as an SST and return a view of it."""
        sst = await self.sst(entries)
        return SstView(id=sst.id, sst=sst, visible_range=visible)


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Sort by key, then newest first."""
    return sorted(entries, key=lambda entry: (entry.key, -entry.seq))


def scan_of(
    view: SuperVersion,
    key_range: KeyRange = EVERYTHING,
    *,
    max_seq: int | None = None,
    limit: int | None = None,
    **options: Any,
) -> Scan:
    """A scan of a super version that no handle owns."""
    return Scan(ReadPoint(view, max_seq), ScanPlan(key_range=key_range, expected_rows=limit, **options))
