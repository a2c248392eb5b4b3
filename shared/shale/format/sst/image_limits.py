"""How large the unpacked sections of an SST can be, so that a section that expands to more is refused early.

The stats have the number of rows and the bytes of all keys and values.  A block holds some of the rows, the index some
of the keys, and a filter a bounded number of bits for each row.  The stats themselves and the index of a WAL file
consist of small tables of different numbers, which hardly shrink: ``RATIO_USUAL`` is enough for them.
"""

from shale.format.sst.stats import SstStats

IMAGE_BYTES_USUAL = 16 << 20
"""Sections up to this size are unpacked, whatever the stats say."""
_ROW_BYTES_MAX = 64
"""What a row has beyond its key and value: lengths, sequence number, flags, two times, the offset of a restart."""
_BLOCK_ENTRY_BYTES_MAX = 64
_FILTER_BYTES_PER_ROW_MAX = 1024
"""Eight filters with the largest number of bits, 1000 for each key."""


def stats_image_max() -> int:
    """Return the limit for the stats."""
    return IMAGE_BYTES_USUAL


def index_image_max(stats: SstStats | None) -> int | None:
    """Return the limit for the index; ``None`` without stats."""
    if stats is None:
        return None
    blocks = len(stats.blocks) or stats.num_rows
    return max(IMAGE_BYTES_USUAL, stats.raw_key_size + blocks * _BLOCK_ENTRY_BYTES_MAX)


def filter_image_max(stats: SstStats | None) -> int | None:
    """Return the limit for all filters together; ``None`` without stats."""
    return None if stats is None else max(IMAGE_BYTES_USUAL, stats.num_rows * _FILTER_BYTES_PER_ROW_MAX)


def block_image_max(stats: SstStats | None) -> int | None:
    """Return the limit for a block, which may consist of one row with the largest value; ``None`` without stats."""
    if stats is None:
        return None
    rows_bytes = stats.raw_key_size + stats.raw_val_size + stats.num_rows * _ROW_BYTES_MAX
    return max(IMAGE_BYTES_USUAL, rows_bytes)
