"""Reads SSTs through a cache: metadata with one range read, single blocks for lookups, spans of blocks for scans."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import anyio

from shale.concurrency.background_tasks import BackgroundTasks
from shale.env import Env
from shale.errors import CorruptionError, SstMissing
from shale.format.blocks.decoder import StoredBlocks, decode_blocks, decode_images, open_blocks
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BloomPolicy
from shale.kernels.rows import Rows
from shale.sst.access_counts import AccessCounts
from shale.sst.cache import BlockCache
from shale.sst.local_blocks import LocalBlocks
from shale.sst.local_reader import LocalReader, local_reader_of, part_reader_of
from shale.sst.meta import SstMeta, decode_meta, meta_span
from shale.sst.paths import SstPaths
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject, ObjectStore
from shale.telemetry import tracing
from shale.telemetry.metrics import Metrics
from shale.types import EVERYTHING, Compression, KeyRange, Manifest, Sst, Ulid

if TYPE_CHECKING:
    from shale.sst.disk_cache import DiskCache

INLINE_BYTES_MAX = 256 << 10
"""Decoding up to this size takes about as long as handing it to a thread."""


class SstReaderOptions(TypedDict, total=False):
    """How SSTs are read.

    filter_policies: with the extractors of prefixes; by default one Bloom filter over keys.
    with_filters: read filters (the default); full scans do not need them.
    on_read: receives the size of every response of the store.
    disk: caches parts of SSTs on disk.
    background: writes parts to that cache; by default reads wait for the write.
    transformer: transforms every section, as when the SST was written.
    """

    filter_policies: Sequence[BloomPolicy]
    with_filters: bool
    on_read: Callable[[int], None] | None
    disk: "DiskCache | None"
    background: BackgroundTasks
    transformer: BlockTransformer | None


class SstReader:
    """Reads the SSTs of one database.  Belongs to one event loop, like its cache."""

    def __init__(
        self,
        store: ObjectStore,
        paths: SstPaths,
        cache: BlockCache,
        env: Env,
        metrics: Metrics | None = None,
        **options: Unpack[SstReaderOptions],
    ) -> None:
        """Make no request.

        Args:
            store, paths: where SSTs are.
            cache: holds metadata and blocks.
            env: decodes large reads in threads.
            metrics: exports counters here.
            options: see ``SstReaderOptions``.
        """
        filter_policies = options.get("filter_policies", (BloomPolicy(),))
        disk = options.get("disk")
        self.cache = cache
        self.env = env
        self.is_local = store.url.startswith("file:")
        """Whether a local disk answers reads, mostly from its page cache: then a task for each would cost more."""
        self.counts = AccessCounts()
        self._extractors = [p.prefix_extractor for p in filter_policies if p.prefix_extractor is not None]
        self._store = store
        self._paths = paths
        self._with_filters = options.get("with_filters", True)
        self._on_read = options.get("on_read")
        self.transformer = options.get("transformer")
        self.parts = part_reader_of(disk, store, env, options.get("background"))
        """Reads through the disk cache, if there is one."""
        self._local = local_reader_of(store, self.parts)
        self.reads_now = self._local is not None
        """Whether some reads do not wait: ``meta_now`` and ``local_blocks``."""
        self.local_blocks = LocalBlocks(
            self._local, cache, self.counts, transformer=self.transformer, on_read=self._on_read
        )
        self._slots: weakref.WeakValueDictionary[Ulid, SstSlot] = weakref.WeakValueDictionary()
        self._corrupt = None
        if metrics is not None:
            self.counts.export(metrics)
            if self.parts is not None:
                self.parts.export(metrics)
            self._corrupt = metrics.counter("slatedb_corruption_total", resource="compacted")
        gone = weakref.finalize(self, cache.abandon, self._slots)
        gone.atexit = False

    def follow(self, manifest: Manifest) -> None:
        """Resolve the paths of new SSTs with this manifest, and close the files of those that it replaces."""
        self._paths = SstPaths.of(self._paths.root, manifest)
        if self._local is not None:
            self._local.close_files()

    def close(self) -> None:
        """Drop everything of this database from the cache, and close its files."""
        for slot in self.slots():
            self.cache.forget(slot)
        if self._local is not None:
            self._local.close()

    def slots(self) -> list[SstSlot]:
        """Return every slot in use."""
        return list(self._slots.values())

    def evict(self, slot: SstSlot, *, disk: bool = False) -> None:
        """Evict everything of an SST from memory, and from disk if ``disk``."""
        self.cache.forget(slot)
        if disk and self.parts is not None:
            slot.files.clear()
            self.parts.forget(slot.path)

    def evict_blocks(self, slot: SstSlot, first: int, last: int) -> None:
        """Evict the blocks ``[first, last)`` from memory."""
        for block in range(first, last):
            self.cache.drop_block(slot, block)

    def slot(self, sst: Sst) -> SstSlot:
        """Return the slot of an SST; make no request."""
        slot = self._slots.get(sst.id)
        if slot is None:
            slot = self._slots[sst.id] = SstSlot(sst, self._paths.key(sst.id))
        return slot

    async def meta(self, sst: Sst) -> SstMeta:
        """Return filter, index and stats of an SST.

        Raises:
            CorruptionError: the object is missing or malformed.
        """
        return await self.load(self.slot(sst))

    async def load(self, slot: SstSlot) -> SstMeta:
        """See ``meta``.  Callers that need the same metadata at the same time share one request."""
        while slot.meta is None and slot.loading is not None:
            await slot.loading.wait()
        has_filter = int(self._with_filters and slot.sst.info.filter_len > 0)
        if (held := slot.meta or slot.recall()) is not None:
            self.counts.index_hits += 1
            self.counts.filter_hits += has_filter
            slot.meta_touched = True
            self.cache.put_meta(slot, held)
            return held
        self.counts.index_misses += 1
        self.counts.filter_misses += has_filter
        slot.loading = loading = anyio.Event()
        try:
            with self._reading(slot, "sst.index"):
                meta = await self._read_meta(slot)
            self.cache.put_meta(slot, meta)
        finally:
            slot.loading = None
            loading.set()
        return meta

    async def images(
        self, slot: SstSlot, meta: SstMeta, first: int, last: int, *, keep: bool = True, is_admitted: bool = False
    ) -> list[bytes]:
        """Return the decoded blocks ``[first, last)`` for a lookup: from the cache, or with one range read.

        Args:
            slot, meta, first, last: which blocks.
            keep: what is read fills the cache.
            is_admitted: the caller has waited for memory.
        """
        if has_blocks(slot, meta, first, last):
            self.counts.block_hits += last - first
            slot.touched[first:last] = b"\x01" * (last - first)
            return [slot.images[block] for block in range(first, last)]
        self.counts.block_misses += last - first
        offsets, images = meta.index.offsets[first : last + 1].tolist(), []
        open_block = partial(
            open_section,
            compression=slot.sst.info.compression,
            path=slot.path,
            transformer=self.transformer,
            image_max=meta.block_image_max,
        )
        if not is_admitted:
            await self.cache.budget.admit(offsets[-1] - offsets[0])
        with self._reading(slot, "sst.blocks"):
            data = memoryview(await self._read(slot, offsets[0], offsets[-1]))
            for block, start, end in zip(range(first, last), offsets, offsets[1:], strict=False):
                image = bytes(open_block(data[start - offsets[0] : end - offsets[0]], offset=start))
                if keep:
                    self.cache.put_block(slot, block, image)
                images.append(image)
        return images

    def meta_now(self, slot: SstSlot) -> SstMeta | None:
        """Do the same as ``load`` without waiting; ``None`` if that is impossible: ``load`` finds out why."""
        if slot.meta is not None:
            return slot.meta
        if self._local is None or slot.loading is not None:
            return None
        meta = slot.recall()
        has_filter = int(self._with_filters and slot.sst.info.filter_len > 0)
        if meta is not None:
            self.counts.index_hits += 1
            self.counts.filter_hits += has_filter
        elif (meta := self._read_meta_now(slot, self._local)) is not None:
            self.counts.index_misses += 1
            self.counts.filter_misses += has_filter
        else:
            return None
        self.cache.put_meta(slot, meta)
        return meta

    async def blocks(self, sst: Sst, first: int, last: int) -> Rows:
        """Return all rows of the blocks ``[first, last)``, with one range read unless the cache has every block.

        Raises:
            CorruptionError: the object is missing, or a block is malformed; the error has its offset.
        """
        slot = self.slot(sst)
        return await self.rows(slot, await self.load(slot), first, last)

    async def rows(self, slot: SstSlot, meta: SstMeta, first: int, last: int, *, keep: bool = False) -> Rows:
        """See ``blocks``.

        Args:
            slot: the SST.
            meta: its metadata.
            first, last: which blocks.
            keep: fill the cache.  Long scans do not, since they would evict the blocks of lookups.
        """
        offsets = meta.index.offsets[first : last + 1]
        version, path = slot.sst.format_version, slot.path
        if keep or has_blocks(slot, meta, first, last):
            images = await self.images(slot, meta, first, last)
            size_bytes = int(offsets[-1] - offsets[0])
            decode = partial(decode_images, images, offsets, version=version, path=path)
        else:
            data = await self.read_stored(slot, meta, first, last)
            size_bytes = len(data)
            decode = partial(
                decode_blocks,
                data,
                offsets,
                version=version,
                compression=slot.sst.info.compression,
                path=path,
                transformer=self.transformer,
                image_max=meta.block_image_max,
            )
        with self._counting_corruption(slot):
            return decode() if size_bytes <= INLINE_BYTES_MAX else await self.env.cpu.run(decode)

    async def read_stored(self, slot: SstSlot, meta: SstMeta, first: int, last: int) -> memoryview:
        """Return the bytes of the blocks ``[first, last)``, past the cache."""
        with self._reading(slot, "sst.blocks"):
            return await self._read(slot, int(meta.index.offsets[first]), int(meta.index.offsets[last]))

    async def stored(self, slot: SstSlot, meta: SstMeta, first: int, last: int, visible: KeyRange) -> StoredBlocks:
        """Return the blocks ``[first, last)`` uncompressed, past the cache; their rows are not checked yet.

        Raises:
            CorruptionError: the object is missing, or a block cannot be decompressed.
        """
        offsets = meta.index.offsets[first : last + 1]
        compression = slot.sst.info.compression
        with self._reading(slot, "sst.blocks"):
            data = await self._read(slot, int(offsets[0]), int(offsets[-1]))
            unpack = partial(
                open_blocks,
                data,
                offsets,
                version=slot.sst.format_version,
                compression=compression,
                path=slot.path,
                transformer=self.transformer,
                image_max=meta.block_image_max,
            )
            is_cheap = len(data) <= INLINE_BYTES_MAX or (compression is Compression.NONE and self.transformer is None)
            blocks = unpack() if is_cheap else await self.env.cpu.run(unpack)
            return blocks if visible is EVERYTHING else replace(blocks, visible=visible)

    def open_direct(self, slot: SstSlot) -> LocalObject | None:
        """Open the file of an SST whose bytes are its blocks; ``None``: there is none, or reads of it may wait."""
        is_image = slot.sst.info.compression is Compression.NONE and self.transformer is None
        if self._local is None or self.parts is not None or self._on_read is not None or not is_image:
            return None
        return self._local.open(slot)

    def may_contain_prefix(self, meta: SstMeta, prefix: bytes) -> bool:
        """Return whether the filters of an SST admit a prefix, and count the answer; without a filter they do."""
        if not meta.filters.answers_prefix(prefix):
            return True
        may_contain = meta.filters.may_contain_prefix(prefix)
        self.counts.prefix_positives += may_contain
        self.counts.prefix_negatives += not may_contain
        return may_contain

    @contextlib.contextmanager
    def _reading(self, slot: SstSlot, step: str) -> Iterator[None]:
        """Make a step of a trace, and count corruption."""
        with tracing.step(step, **{"slatedb.object": slot.path}), self._counting_corruption(slot):
            yield

    @contextlib.contextmanager
    def _counting_corruption(self, slot: SstSlot) -> Iterator[None]:
        try:
            yield
        except SstMissing:
            raise  # GC may have deleted it; the caller finds out with a newer manifest and calls ``count_missing``
        except CorruptionError:
            self.count_corruption(slot.path)
            raise

    def count_corruption(self, path: str) -> None:
        """Count an SST whose returned blocks turned out to be malformed."""
        for slot in self.slots():
            if slot.path == path:
                slot.files.clear()
        if self.parts is not None:
            self.parts.forget(path)
        self.count_missing()

    def count_missing(self) -> None:
        """Count an SST that is damaged, or missing although the newest manifest names it."""
        if self._corrupt is not None:
            self._corrupt.inc()

    async def _read_meta(self, slot: SstSlot) -> SstMeta:
        start, end = self._meta_span(slot)
        data = await self._read(slot, start, end)
        decode = partial(self._decode_meta, slot, data, start)
        return decode() if len(data) <= INLINE_BYTES_MAX else await self.env.cpu.run(decode)

    def _read_meta_now(self, slot: SstSlot, local: LocalReader) -> SstMeta | None:
        start, end = self._meta_span(slot)
        if end - start > INLINE_BYTES_MAX or (data := local.read(slot, start, end)) is None:
            return None
        self._note_read(end - start)
        try:
            return self._decode_meta(slot, data, start)
        except CorruptionError:
            slot.files.clear()
            return None

    def _meta_span(self, slot: SstSlot) -> tuple[int, int]:
        return meta_span(slot.sst.info, slot.path, filters=self._with_filters)

    def _decode_meta(self, slot: SstSlot, data: memoryview, start: int) -> SstMeta:
        return decode_meta(
            slot.sst.info,
            data,
            start,
            filters=self._with_filters,
            extractors=self._extractors,
            transformer=self.transformer,
            path=slot.path,
        )

    async def _read(self, slot: SstSlot, start: int, end: int) -> memoryview:
        if self.parts is None:
            return await self._fetch(slot, start, end)
        fetch = partial(self._fetch, slot)
        return await self.parts.read(slot.path, start, end, slot.sst.info.sections_end, fetch)

    async def _fetch(self, slot: SstSlot, start: int, end: int) -> memoryview:
        data = await self._store.get_range(slot.path, start, end)
        if data is None:
            raise SstMissing(str(slot.sst.id), slot.path)
        self._note_read(len(data))
        return data

    def _note_read(self, size: int) -> None:
        if self._on_read is not None:
            self._on_read(size)


def has_blocks(slot: SstSlot, meta: SstMeta, first: int, last: int) -> bool:
    """Return whether the cache has the blocks ``[first, last)``."""
    return slot.meta is meta and all(block in slot.images for block in range(first, last))
