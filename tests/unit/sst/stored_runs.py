"""SSTs for tests of merges of blocks."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from shale.format.blocks.decoder import StoredBlocks, open_blocks
from shale.format.blocks.plain import encode_block_plain, split_plain
from shale.format.blocks.section import seal_section
from shale.types import EVERYTHING, Compression, Entry, KeyRange
from tests.unit.kernels.blocks_v1 import encode_block_v1
from tests.unit.kernels.strategies import KEYS

RANGES = st.builds(lambda one, other: KeyRange.half_open(min(one, other), max(one, other) + b"\0"), KEYS, KEYS)


def stored(
    rows: list[Entry],
    *,
    span: int = 3,
    version: int = 2,
    compression: Compression = Compression.NONE,
    visible: KeyRange = EVERYTHING,
) -> list[StoredBlocks]:
    """Return spans of ``span`` blocks each."""
    encode = encode_block_plain if version == 2 else encode_block_v1
    sections = [seal_section(encode(part), compression) for part in split_plain(rows, 150)]
    offsets = np.cumsum([1000, *map(len, sections)])
    data = b"".join(sections)
    starts = [*range(0, len(sections), span), len(sections)]
    return [
        open_blocks(
            data[offsets[first] - 1000 : offsets[last] - 1000],
            offsets[first : last + 1],
            version=version,
            compression=compression,
            path="x.sst",
            visible=visible,
        )
        for first, last in pairwise(starts)
    ]
