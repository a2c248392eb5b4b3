"""Changes of whole SSTs and WAL files: one part is changed, and checksums, offsets and footer are made right again."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np

from shale.errors import ShaleError
from shale.format.blocks.section import open_section, seal_section
from shale.format.sst.index import BlockIndex, decode_index, encode_index
from shale.format.sst.info import TRAILER_SIZE, decode_trailer, encode_trailer
from shale.types import Compression, FilterFormat, SstInfo, SstType
from tests.fuzz.block_mutation import mutate_block
from tests.fuzz.flat_mutation import mutate_flat
from tests.fuzz.mutation import NUMBERS, mutate_bytes

_OFFSETS = ("index_offset", "index_len", "filter_offset", "filter_len", "stats_offset", "stats_len")


def mutate_sst(rng: random.Random, data: bytes) -> bytes:
    """Return a file with one part changed; a file that cannot be taken apart is changed byte by byte."""
    try:
        return _Parts(data).changed(rng)
    except (ShaleError, ValueError, IndexError, OverflowError, AssertionError):
        return mutate_bytes(rng, data)


class _Parts:
    """The images of all parts of a file."""

    def __init__(self, data: bytes) -> None:
        info, self.version = decode_trailer(data, object_size=len(data))
        self.info = info

        def image(start: int, length: int) -> bytes:
            return bytes(open_section(data[start : start + length], info.compression)) if length else b""

        self.index = decode_index(image(info.index_offset, info.index_len), data_len=info.data_len)
        bounds = self.index.offsets.tolist()
        self.blocks = [image(start, end - start) for start, end in pairwise(bounds)]
        self.filters = image(info.filter_offset, info.filter_len)
        self.stats = image(info.stats_offset, info.stats_len)
        self.raw_index: bytes | None = None
        self.tail = data[int.from_bytes(data[-TRAILER_SIZE:-2], "big") :]

    def changed(self, rng: random.Random) -> bytes:
        """Change one part and return the file."""
        match rng.randrange(9):
            case 0 | 1 | 2:
                at = rng.randrange(len(self.blocks))
                self.blocks[at] = mutate_block(rng, self.blocks[at])
            case 3:
                self.filters = mutate_bytes(rng, self.filters)
            case 4:
                self.stats = mutate_flat(rng, self.stats, "SstStats")
            case 5:
                self.raw_index = mutate_flat(rng, encode_index(self.index), "SsTableIndex")
            case 6:
                return self.encoded(self._other_info(rng))
            case 7:
                self.version = rng.choice((0, 1, 2, 3, 0xFFFF))
            case _:
                self._move_blocks(rng)
        return self.encoded()

    def _move_blocks(self, rng: random.Random) -> None:
        """Repeat, drop or swap whole blocks, together with their entries of the index or without."""
        at = rng.randrange(len(self.blocks))
        other = rng.randrange(len(self.blocks))
        self.blocks[at], self.blocks[other] = self.blocks[other], rng.choice((self.blocks[at], self.blocks[other]))

    def _other_info(self, rng: random.Random) -> dict[str, object]:
        name = rng.choice(
            (*_OFFSETS, *_OFFSETS, "first_entry", "last_entry", "compression", "sst_type", "filter_format")
        )
        current = getattr(self.info, name)
        if name in _OFFSETS:
            return {name: rng.choice((*(abs(each) % (1 << 64) for each in NUMBERS), current + 1, max(current - 1, 0)))}
        kinds = {"compression": list(Compression), "sst_type": list(SstType), "filter_format": list(FilterFormat)}
        if name in kinds:
            return {name: rng.choice(kinds[name])}
        return {name: rng.choice((None, b"", b"\xff" * 9, mutate_bytes(rng, current or b"k")))}

    def encoded(self, info_fields: dict[str, object] | None = None) -> bytes:
        """Return the file; offsets are those of the parts, unless fields of the footer are given."""
        codec = self.info.compression
        sections = [seal_section(each, codec) for each in self.blocks]
        offsets = np.cumsum([0, *map(len, sections)])
        index = BlockIndex(offsets=offsets, key_bytes=self.index.key_bytes, key_offsets=self.index.key_offsets)
        body = b"".join(sections)
        fields: dict[str, object] = {}
        if self.info.filter_len:
            section = seal_section(self.filters, codec)
            fields |= {"filter_offset": len(body), "filter_len": len(section)}
            body += section
        section = seal_section(encode_index(index) if self.raw_index is None else self.raw_index, codec)
        fields |= {"index_offset": len(body), "index_len": len(section)}
        body += section
        if self.info.stats_len:
            section = seal_section(self.stats, codec)
            fields |= {"stats_offset": len(body), "stats_len": len(section)}
            body += section
        info: SstInfo = replace(self.info, **{**fields, **(info_fields or {})})  # type: ignore[arg-type]
        return body + encode_trailer(info, offset=len(body), version=self.version)
