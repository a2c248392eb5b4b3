"""SSTs with chosen mistakes."""

from typing import TYPE_CHECKING

import numpy as np

from shale.format.blocks.plain import encode_block_plain
from shale.format.blocks.section import seal_section
from shale.format.sst.bloom import encode_bloom
from shale.format.sst.filter import encode_filters
from shale.format.sst.index import BlockIndex, encode_index
from shale.format.sst.info import encode_trailer
from shale.format.sst.stats import SstStats, encode_stats
from shale.types import (
    Compression,
    Entry,
    FilterFormat,
    SstInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Forge:
    """Writes SSTs whose parts contradict each other under valid checksums."""

    def __init__(self, blocks: list[list[Entry]]) -> None:
        self.blocks = blocks
        self.entries = [entry for block in blocks for entry in block]
        self.separators = [b"", *(block[0].key for block in blocks[1:])]
        self.hashed = self.entries
        self.stats = SstStats(
            num_puts=len(self.entries),
            raw_key_size=sum(len(entry.key) for entry in self.entries),
            raw_val_size=sum(len(entry.value) for entry in self.entries),
            blocks=np.array([[len(block), 0, 0] for block in blocks], np.uint16),
        )
        self.gap = b""
        self.last_entry = self.entries[-1].key
        self.edit_image: Callable[[bytes], bytes] = bytes

    def write(self) -> tuple[bytes, SstInfo]:
        from shale.format.sst.filter import hash_keys

        images = [self.edit_image(encode_block_plain(block)) for block in self.blocks]
        sections = [seal_section(image, Compression.NONE) for image in images]
        data = b"".join(sections)
        hashes = hash_keys(entry.key for entry in self.hashed)
        named = encode_filters([("_bf", encode_bloom(hashes, 10)), ("_other", b"what we cannot read")])
        filters = seal_section(named, Compression.NONE)
        starts = np.cumsum([0, *map(len, sections)])[:-1].tolist()
        index = seal_section(
            encode_index(BlockIndex.of(starts, self.separators, data_len=len(data))), Compression.NONE
        )  # fmt: skip
        stats = seal_section(encode_stats(self.stats), Compression.NONE)
        info = SstInfo(
            first_entry=self.entries[0].key,
            last_entry=self.last_entry,
            filter_offset=len(data),
            filter_len=len(filters),
            index_offset=len(data) + len(filters),
            index_len=len(index),
            stats_offset=len(data) + len(filters) + len(index),
            stats_len=len(stats),
            filter_format=FilterFormat.COMPOSITE,
        )
        body = data + filters + index + stats + self.gap
        return body + encode_trailer(info, offset=len(body)), info


def row(key: bytes, seq: int = 1) -> Entry:
    return Entry(key, b"value", seq, 0)


SOUND = [[row(b"a"), row(b"b")], [row(b"c", 9), row(b"c", 5)], [row(b"c", 2), row(b"d")]]
