"""A store in memory whose SSTs of the simulated database are made when they are read; it counts requests."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, thread_time

from shale.core.bytes_like import BytesLike
from shale.env import Clock
from shale.format.names import compacted_prefix, parse_sst_key, sst_key
from shale.store.memory import MemoryStore
from shale.store.port import LIST_PAGE, OVERWRITE, ETag, GetResult, NotModified, ObjectMeta, PutMode
from shale.types import Ulid
from tests.bench.scale.content import block_of, tail_of
from tests.bench.scale.database import BLOCK_BYTES, CREATED_MS, SST_BYTES, Extent


class SimulatedStore(MemoryStore):
    """Manifests and WAL files as in memory, SSTs made on demand.

    ``requests`` counts by kind.  ``making`` sums the seconds, of the wall clock and of CPU, that went into contents: no
    real store would spend them.
    """

    def __init__(self, clock: Clock, root: str, extents: Mapping[Ulid, Extent]) -> None:
        super().__init__(clock)
        self._root = root
        self.extents = extents
        self._tail_bytes = len(tail_of(next(iter(extents.values()))))
        self.requests: Counter[str] = Counter()
        self.read_bytes = 0
        self.making = (0.0, 0.0)

    def reset(self) -> None:
        """Count from 0 again."""
        self.requests.clear()
        self.read_bytes = 0
        self.making = (0.0, 0.0)

    @contextmanager
    def _making(self) -> Iterator[None]:
        wall, cpu = perf_counter(), thread_time()
        yield
        self.making = (self.making[0] + perf_counter() - wall, self.making[1] + thread_time() - cpu)

    def _extent(self, key: str) -> Extent | None:
        sst_id = parse_sst_key(self._root, key)
        return None if sst_id is None else self.extents.get(sst_id)

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        self.requests["get"] += 1
        return await super().get(key)

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        self.requests["get"] += 1
        return await super().get_if_changed(key, etag)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        self.requests["range"] += 1
        self.read_bytes += end - start
        extent = self._extent(key)
        if extent is None:
            return await super().get_range(key, start, end)
        with self._making():
            made = self._tail(extent, start, end) if start >= SST_BYTES else _blocks(extent, start, end)
        return memoryview(made)

    def _tail(self, extent: Extent, start: int, end: int) -> bytes:
        return tail_of(extent)[start - SST_BYTES : end - SST_BYTES]

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        self.requests["head"] += 1
        return await super().head(key) if self._extent(key) is None else self._meta(key)

    def _meta(self, key: str) -> ObjectMeta:
        return ObjectMeta(key, SST_BYTES + self._tail_bytes, CREATED_MS)

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        self.requests["put"] += 1
        return await super().put(key, data, mode=mode, attributes=attributes)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return [meta async for page in self.list_pages(prefix) for meta in page]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``."""
        found = {key: value.meta for key, value in self.objects.items()}
        if compacted_prefix(self._root).startswith(prefix) or prefix == compacted_prefix(self._root):
            with self._making():
                found.update({(key := sst_key(self._root, each)): self._meta(key) for each in self.extents})
        keys = sorted(key for key in found if key.startswith(prefix) and key > after)
        self.requests["list"] += not keys
        for first in range(0, len(keys), LIST_PAGE):
            self.requests["list"] += 1
            yield [found[key] for key in keys[first : first + LIST_PAGE]]


def _blocks(extent: Extent, start: int, end: int) -> bytes:
    assert start % BLOCK_BYTES == 0 == end % BLOCK_BYTES, "readers ask for whole blocks"
    return b"".join(block_of(extent, block) for block in range(start // BLOCK_BYTES, end // BLOCK_BYTES))
