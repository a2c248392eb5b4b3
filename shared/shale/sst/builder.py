"""Builds a compacted SST from rows in columns, as a stream, byte for byte as SlateDB does.

Source: docs/reference/format.md 6 to 12.

::

    data blocks | filter | index | stats | footer and trailer

Memory: the parts not taken yet, the open block, the index and the filter hashes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.format.blocks.output import NO_LIMIT, BlockOptions
from shale.format.blocks.section import seal_section
from shale.format.blocks.writer import BlockWriter
from shale.format.sst.filter import FilterHashes, encode_filters, hash_keys
from shale.format.sst.index import encode_index
from shale.format.sst.info import encode_trailer
from shale.format.sst.stats import SstStats, encode_stats
from shale.kernels import siphash
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import U64, Rows
from shale.sst.options import SstOptions
from shale.types import FilterFormat, SstInfo, SstType

if TYPE_CHECKING:
    from shale.format.blocks.merge import BlockMerge


class SstBuilder:
    """Builds one SST; not thread-safe."""

    def __init__(self, options: SstOptions) -> None:
        self._options = options
        self._blocks = BlockWriter(
            BlockOptions(
                target_bytes=options.block_size_bytes,
                compression=options.compression,
                merged_part_bytes=options.merged_part_bytes,
                transformer=options.transformer,
            )
        )
        self._filters = [FilterHashes(policy) for policy in options.filter_policies]
        self._first_key: bytes | None = None
        self._last_key: bytes | None = None
        self._last_seq = 0
        self._row_count = 0
        self._raw_key_size = 0
        self._raw_val_size = 0

    def add(self, rows: Rows, *, until_bytes: int = NO_LIMIT) -> int:
        """Append rows in order and return how many were taken.

        Args:
            rows: ascending keys, versions of a key newest first.
            until_bytes: stop once finished blocks take more, though never between two versions of a key; the other
                rows begin the next SST.
        """
        taken = self._blocks.add(rows, until_bytes) if len(rows) else 0
        if taken:
            self._note(rows.slice(0, taken))
        return taken

    def merge(self, merge: "BlockMerge", *, until_bytes: int = NO_LIMIT) -> MergeStatus:
        """Append rows of a merge of stored blocks until it needs something or reaches ``until_bytes``.

        All rows of the SST come from one merge that has begun a file for it.  ``SstOptions.filters_need_rows`` must be
        false.

        Raises:
            CorruptionError: a source is malformed; the error has its place.
        """
        before = merge.rows
        step = self._blocks.merge(merge, until_bytes, self._add_hashes if self._filters else None)
        if merge.rows > before:
            if self._first_key is None:
                self._first_key = merge.first_key
            self._last_key = merge.last_key
            self._last_seq = merge.last_seq
            self._row_count = merge.rows
            self._raw_key_size = merge.keys_len
            self._raw_val_size = merge.values_len
        return step

    def _add_hashes(self, hashes: U64) -> None:
        for filter_hashes in self._filters:
            filter_hashes.add_hashes(hashes)

    def _note(self, rows: Rows) -> None:
        if self._filters:
            hashes = hash_rows(rows)
            for filter_hashes in self._filters:
                filter_hashes.add_rows(rows, hashes)
        if self._first_key is None:
            self._first_key = rows.key(0)
        self._last_key = rows.key(len(rows) - 1)
        self._last_seq = int(rows.seq[-1])
        self._row_count += len(rows)
        self._raw_key_size += int(rows.key_offsets[-1] - rows.key_offsets[0])
        self._raw_val_size += int(rows.val_offsets[-1] - rows.val_offsets[0])

    @property
    def is_empty(self) -> bool:
        """Whether no row was added: such an SST must not be stored (docs/reference/format.md 16)."""
        return self._row_count == 0

    @property
    def row_count(self) -> int:
        """The number of rows so far."""
        return self._row_count

    @property
    def raw_bytes(self) -> int:
        """The bytes of all keys and values so far."""
        return self._raw_key_size + self._raw_val_size

    @property
    def data_len(self) -> int:
        """The bytes of finished blocks."""
        return self._blocks.written.data_len

    @property
    def last_row(self) -> tuple[bytes, int] | None:
        """Key and sequence number of the last row, after which a compaction can resume."""
        return None if self._last_key is None else (self._last_key, self._last_seq)

    def take_parts(self) -> list[BytesLike]:
        """Return the final bytes not taken yet; all parts taken and those of ``finish`` make up the file."""
        return self._blocks.take_parts()

    def finish(self) -> tuple[list[BytesLike], SstInfo]:
        """Return the remaining parts, and the footer for the manifest."""
        assert not self.is_empty, "an SST is never empty"
        self._blocks.finish()
        parts = self._blocks.take_parts()
        data_len = self._blocks.written.data_len
        compression, transformer = self._options.compression, self._options.transformer
        filter_block = b"".join(seal_section(image, compression, transformer) for image in self._filter_images())
        self._filters.clear()  # frees megabytes of hashes while the next SST begins
        index_block = seal_section(encode_index(self._blocks.written.index()), compression, transformer)
        stats_block = seal_section(encode_stats(self._stats()), compression, transformer)
        index_offset = data_len + len(filter_block)
        info = SstInfo(
            first_entry=self._first_key,
            last_entry=self._last_key,
            filter_offset=data_len,
            filter_len=len(filter_block),
            index_offset=index_offset,
            index_len=len(index_block),
            stats_offset=index_offset + len(index_block),
            stats_len=len(stats_block),
            compression=compression,
            sst_type=SstType.COMPACTED,
            filter_format=FilterFormat.COMPOSITE,
        )
        trailer = encode_trailer(info, offset=info.stats_offset + info.stats_len)
        return [*parts, *filter(None, (filter_block, index_block, stats_block, trailer))], info

    def _filter_images(self) -> Iterator[bytes]:
        if self._filters and self._row_count >= self._options.min_filter_keys:
            yield encode_filters([(hashes.policy.name, hashes.encode()) for hashes in self._filters])

    def _stats(self) -> SstStats:
        counts = self._blocks.written.block_counts()
        puts, deletes, merges = counts.sum(axis=0).tolist()
        return SstStats(
            num_puts=puts,
            num_deletes=deletes,
            num_merges=merges,
            raw_key_size=self._raw_key_size,
            raw_val_size=self._raw_val_size,
            blocks=counts.astype(np.uint16),
        )


def build_sst(rows: Rows, options: SstOptions) -> tuple[bytes, SstInfo]:
    """Return an SST of rows in memory, and its footer."""
    builder = SstBuilder(options)
    builder.add(rows)
    parts, info = builder.finish()
    return b"".join(parts), info


def hash_rows(rows: Rows) -> U64:
    """Return the hash of every row's key, as filters store it; shape (n,)."""
    if use_kernels():
        return siphash.hash_keys(rows)
    return hash_keys(rows.key(index) for index in range(len(rows)))
