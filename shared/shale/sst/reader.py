"""The SSTs of one database: their slots in the cache, and what reads their metadata and blocks."""

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from shale.concurrency.background_tasks import BackgroundTasks
from shale.env import Env
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BloomPolicy
from shale.kernels.rows import Rows
from shale.sst.access_counts import AccessCounts
from shale.sst.cache import BlockCache
from shale.sst.meta import SstMeta
from shale.sst.paths import SstPaths
from shale.sst.reads.data_blocks import DataBlockReader
from shale.sst.reads.local_blocks import LocalBlocks
from shale.sst.reads.metadata import MetadataReader
from shale.sst.reads.sections import SectionReader
from shale.sst.slot import SstSlot
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Sst, Ulid

if TYPE_CHECKING:
    from shale.sst.disk_cache import DiskCache


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
        on_read = options.get("on_read")
        self.cache = cache
        self.env = env
        self.is_local = store.url.startswith("file:")
        """Whether a local disk answers reads, mostly from its page cache: then a task for each would cost more."""
        self.counts = counts = AccessCounts()
        self.transformer = transformer = options.get("transformer")
        self.sections = sections = SectionReader(
            store, env, disk=options.get("disk"), background=options.get("background"), on_read=on_read
        )
        self.metadata = MetadataReader(
            sections,
            cache,
            counts,
            env,
            transformer=transformer,
            filter_policies=options.get("filter_policies", (BloomPolicy(),)),
            with_filters=options.get("with_filters", True),
        )
        self.data_blocks = DataBlockReader(sections, cache, counts, env, transformer=transformer)
        self.reads_now = sections.local is not None
        """Whether some reads do not wait: of ``metadata`` and of ``local_blocks``."""
        self.local_blocks = LocalBlocks(sections.local, cache, counts, transformer=transformer, on_read=on_read)
        self._paths = paths
        self._slots: weakref.WeakValueDictionary[Ulid, SstSlot] = weakref.WeakValueDictionary()
        if metrics is not None:
            counts.export(metrics)
            sections.export(metrics)
        gone = weakref.finalize(self, cache.abandon, self._slots)
        gone.atexit = False

    def follow(self, manifest: Manifest) -> None:
        """Resolve the paths of new SSTs with this manifest, and close the files of those that it replaces."""
        self._paths = SstPaths.of(self._paths.root, manifest)
        if self.sections.local is not None:
            self.sections.local.close_files()

    def close(self) -> None:
        """Drop everything of this database from the cache, and close its files."""
        for slot in self.slots():
            self.cache.forget(slot)
        if self.sections.local is not None:
            self.sections.local.close()

    def slots(self) -> list[SstSlot]:
        """Return every slot in use."""
        return list(self._slots.values())

    def evict(self, slot: SstSlot, *, disk: bool = False) -> None:
        """Evict everything of an SST from memory, and from disk if ``disk``."""
        self.cache.forget(slot)
        if disk and self.sections.parts is not None:
            slot.files.clear()
            self.sections.parts.forget(slot.path)

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
        """See ``MetadataReader.load``."""
        return await self.metadata.load(self.slot(sst))

    async def rows(self, sst: Sst, first: int, last: int) -> Rows:
        """See ``DataBlockReader.rows``."""
        slot = self.slot(sst)
        return await self.data_blocks.rows(slot, await self.metadata.load(slot), first, last)

    def count_corruption(self, path: str) -> None:
        """Count an SST whose returned blocks turned out to be malformed."""
        for slot in self.slots():
            if slot.path == path:
                slot.files.clear()
        self.sections.count_corruption(path)
