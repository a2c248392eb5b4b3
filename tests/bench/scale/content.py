"""The bytes of a simulated SST, made for the range that is asked for: a real layout without a file."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from shale.format.blocks.section import seal_section
from shale.format.sst.filter import FilterHashes, encode_filters
from shale.format.sst.filter_policy import BloomPolicy
from shale.format.sst.index import BlockIndex, encode_index
from shale.format.sst.info import encode_trailer
from shale.format.sst.stats import SstStats, encode_stats
from shale.kernels.rows import U8, Rows
from shale.kernels.siphash import hash_keys
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.types import FLAG_CREATE_TS, Compression
from tests.bench.scale.database import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    BLOCKS,
    CREATED_MS,
    ROWS,
    SST_BYTES,
    Extent,
    SectionSizes,
    info_of,
)

_KEY_BYTES = 16
_VALUE_BYTES = 980
_ONE_BLOCK = SstOptions(block_size_bytes=65_536, min_filter_keys=BLOCK_ROWS + 1)


def tail_of(extent: Extent) -> bytes:
    """Return everything after the blocks: filter, index, stats, footer and trailer."""
    sections = _sections(extent)
    sizes = SectionSizes(*map(len, sections))
    info = info_of(extent, sizes)
    return b"".join((*sections, encode_trailer(info, offset=info.sections_end)))


def block_of(extent: Extent, block: int) -> bytes:
    """Return one stored block, ``BLOCK_BYTES`` long: its last value is as long as that takes."""
    first = block * BLOCK_ROWS
    stored = _encoded_block(extent, first, _VALUE_BYTES)
    return _encoded_block(extent, first, _VALUE_BYTES + BLOCK_BYTES - len(stored))


@cache
def section_sizes() -> SectionSizes:
    """Return the sizes of the sections, which are the same in every SST."""
    return SectionSizes(*map(len, _sections(Extent.of(0, 1 << 60))))


def _sections(extent: Extent) -> Sequence[bytes]:
    keys = _keys(extent, 0, ROWS)
    hashes = FilterHashes(BloomPolicy())
    hashes.add_hashes(hash_keys(_rows(keys, np.zeros(ROWS + 1, np.int64))))
    index = BlockIndex(
        offsets=np.arange(0, SST_BYTES + 1, BLOCK_BYTES, dtype=np.int64),
        key_bytes=np.ascontiguousarray(keys[::BLOCK_ROWS]).reshape(-1),
        key_offsets=np.arange(BLOCKS + 1, dtype=np.int64) * _KEY_BYTES,
    )
    images = (encode_filters([(hashes.policy.name, hashes.encode())]), encode_index(index), _stats())
    return [seal_section(image, Compression.NONE) for image in images]


@cache
def _stats() -> bytes:
    counts = np.zeros((BLOCKS, 3), np.uint16)
    counts[:, 0] = BLOCK_ROWS
    size = ROWS * _VALUE_BYTES
    return encode_stats(SstStats(num_puts=ROWS, raw_key_size=ROWS * _KEY_BYTES, raw_val_size=size, blocks=counts))


def _encoded_block(extent: Extent, first: int, last_value_bytes: int) -> bytes:
    sizes = [_VALUE_BYTES] * (BLOCK_ROWS - 1) + [last_value_bytes]
    rows = _rows(_keys(extent, first, first + BLOCK_ROWS), np.cumsum([0, *sizes], dtype=np.int64))
    data, info = build_sst(rows, _ONE_BLOCK)
    return data[: info.data_len]


def _rows(keys: U8, value_offsets: np.ndarray) -> Rows:
    count = len(keys)
    return Rows(
        key_bytes=keys.reshape(-1),
        key_offsets=np.arange(count + 1, dtype=np.int64) * _KEY_BYTES,
        val_bytes=np.zeros(int(value_offsets[-1]), np.uint8),
        val_offsets=value_offsets,
        seq=np.ones(count, np.uint64),
        flags=np.full(count, FLAG_CREATE_TS, np.uint8),
        create_ts=np.full(count, CREATED_MS, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )


def _keys(extent: Extent, first: int, end: int) -> U8:
    numbers = np.arange(first, end, dtype=np.uint64) * np.uint64(extent.step) + np.uint64(extent.start)
    digits = numbers.astype(">u8").tobytes().hex().encode()
    return np.frombuffer(digits, np.uint8).reshape(-1, _KEY_BYTES)
