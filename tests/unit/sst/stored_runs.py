"""SSTs for tests of merges of blocks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from shale.format.blocks.decoder import StoredBlocks, open_blocks
from shale.format.blocks.plain import encode_block_plain, split_plain
from shale.format.blocks.section import seal_section
from shale.kernels.merge_rules import MergeRules
from shale.kernels.merge_status import MergeStatus
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.types import EVERYTHING, Compression, Entry, KeyRange
from tests.unit.kernels.blocks_v1 import encode_block_v1
from tests.unit.kernels.strategies import KEYS

FILES = list[tuple[bytes, object]]
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
        replace(
            open_blocks(
                data[offsets[first] - 1000 : offsets[last] - 1000],
                offsets[first : last + 1],
                version=version,
                compression=compression,
                path="x.sst",
            ),
            visible=visible,
        )
        for first, last in pairwise(starts)
    ]


def merged(sources: Sequence[list[StoredBlocks]], rules: MergeRules, options: SstOptions, until_bytes: int) -> FILES:
    """Return the files that a merge of spans writes."""
    from shale.format.blocks.merge import BlockMerge

    merge = BlockMerge(len(sources), rules)
    rest = [iter(spans) for spans in sources]
    for number, spans in enumerate(rest):
        any(merge.begin(number, blocks) for blocks in spans)
    files: FILES = []
    step = MergeStatus.FULL
    while step is not MergeStatus.DONE:
        merge.begin_file()
        builder, parts = SstBuilder(options), []
        step = MergeStatus.NEED_OUTPUT_SPACE
        while step not in (MergeStatus.DONE, MergeStatus.FULL):
            step = builder.merge(merge, until_bytes=until_bytes)
            parts += builder.take_parts()
            if step is MergeStatus.NEED_INPUT:
                assert merge.source_needing_input is not None
                while not merge.feed(next(rest[merge.source_needing_input], None)):
                    pass
        if not builder.is_empty:
            last_parts, info = builder.finish()
            files.append((b"".join([*parts, *last_parts]), info))
    return files
