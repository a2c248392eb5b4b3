"""Reads the metadata of SSTs through the cache: filter, index and statistics, with one range read."""

from collections.abc import Sequence
from functools import partial

import anyio

from shale.env import Env
from shale.errors import CorruptionError
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BloomPolicy
from shale.sst.access_counts import AccessCounts
from shale.sst.cache import BlockCache
from shale.sst.meta import SstMeta, decode_meta, meta_span
from shale.sst.reads.sections import INLINE_BYTES_MAX, SectionReader
from shale.sst.slot import SstSlot


class MetadataReader:
    """The metadata of one database.  Belongs to one event loop.

    Args:
        sections: reads bytes.
        cache: keeps metadata.
        counts: counts accesses.
        env: decodes large reads in threads.
        transformer, filter_policies, with_filters: see ``SstReaderOptions``.
    """

    def __init__(
        self,
        sections: SectionReader,
        cache: BlockCache,
        counts: AccessCounts,
        env: Env,
        *,
        transformer: BlockTransformer | None,
        filter_policies: Sequence[BloomPolicy],
        with_filters: bool,
    ) -> None:
        self._sections = sections
        self._cache = cache
        self._counts = counts
        self._env = env
        self._transformer = transformer
        self._extractors = [p.prefix_extractor for p in filter_policies if p.prefix_extractor is not None]
        self._with_filters = with_filters

    async def load(self, slot: SstSlot) -> SstMeta:
        """Return filter, index and stats of an SST.  Callers that need them at the same time share one request.

        Raises:
            CorruptionError: the object is missing or malformed.
        """
        while slot.meta is None and slot.loading is not None:
            await slot.loading.wait()
        has_filter = self._has_filter(slot)
        if (held := slot.meta or slot.recall()) is not None:
            self._counts.index_hits += 1
            self._counts.filter_hits += has_filter
            slot.meta_touched = True
            self._cache.put_meta(slot, held)
            return held
        self._counts.index_misses += 1
        self._counts.filter_misses += has_filter
        slot.loading = loading = anyio.Event()
        try:
            with self._sections.step(slot, "sst.index"):
                meta = await self._read(slot)
            self._cache.put_meta(slot, meta)
        finally:
            slot.loading = None
            loading.set()
        return meta

    def load_now(self, slot: SstSlot) -> SstMeta | None:
        """Do the same as ``load`` without waiting; ``None`` if that is impossible: ``load`` finds out why."""
        if slot.meta is not None:
            return slot.meta
        if self._sections.local is None or slot.loading is not None:
            return None
        meta = slot.recall()
        has_filter = self._has_filter(slot)
        if meta is not None:
            self._counts.index_hits += 1
            self._counts.filter_hits += has_filter
        elif (meta := self._read_now(slot)) is not None:
            self._counts.index_misses += 1
            self._counts.filter_misses += has_filter
        else:
            return None
        self._cache.put_meta(slot, meta)
        return meta

    def may_contain_prefix(self, meta: SstMeta, prefix: bytes) -> bool:
        """Return whether the filters of an SST admit a prefix, and count the answer; without a filter they do."""
        if not meta.filters.answers_prefix(prefix):
            return True
        may_contain = meta.filters.may_contain_prefix(prefix)
        self._counts.prefix_positives += may_contain
        self._counts.prefix_negatives += not may_contain
        return may_contain

    def _has_filter(self, slot: SstSlot) -> int:
        return int(self._with_filters and slot.sst.info.filter_len > 0)

    async def _read(self, slot: SstSlot) -> SstMeta:
        start, end = self._span(slot)
        data = await self._sections.read(slot, start, end)
        decode = partial(self._decode, slot, data, start)
        return decode() if len(data) <= INLINE_BYTES_MAX else await self._env.cpu.run(decode)

    def _read_now(self, slot: SstSlot) -> SstMeta | None:
        start, end = self._span(slot)
        if end - start > INLINE_BYTES_MAX or (data := self._sections.read_now(slot, start, end)) is None:
            return None
        try:
            return self._decode(slot, data, start)
        except CorruptionError:
            slot.files.clear()
            return None

    def _span(self, slot: SstSlot) -> tuple[int, int]:
        return meta_span(slot.sst.info, slot.path, filters=self._with_filters)

    def _decode(self, slot: SstSlot, data: memoryview, start: int) -> SstMeta:
        return decode_meta(
            slot.sst.info,
            data,
            start,
            filters=self._with_filters,
            extractors=self._extractors,
            transformer=self._transformer,
            path=slot.path,
        )
