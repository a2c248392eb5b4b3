"""Block codec with checksums, one core: GB of stored blocks per second; and the index that every cold open reads."""

from collections.abc import Iterator

import numpy as np

from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.output import BlockOptions
from shale.format.blocks.section import seal_section
from shale.format.blocks.writer import BlockWriter
from shale.format.sst.index import BlockIndex, encode_index
from shale.sst.meta import SstMeta, decode_meta
from shale.types import Compression, SstInfo
from tests.bench.line import BenchLine, cpu_seconds
from tests.bench.rows import bench_rows, random_numbers

ROWS = 200_000
CHUNK_ROWS = 32_768
TARGET = ">= 2.5 GB/s"
INDEX_BLOCKS = 16_384
INDEX_TARGET = "<= 1 ms"


def codec_lines() -> Iterator[BenchLine]:
    """Encode and decode blocks of 4 KiB, through the interfaces that builders and readers use."""
    yield from _lines("CRC-32", random_numbers(ROWS))
    # Adjacent keys share most of their bytes, and blocks hold more rows.
    yield from _lines("CRC-32, keys in order", np.arange(ROWS))
    yield _index_line()


def _lines(name: str, numbers: np.ndarray) -> Iterator[BenchLine]:
    rows = bench_rows(numbers)
    chunks = [rows.slice(start, min(start + CHUNK_ROWS, ROWS)) for start in range(0, ROWS, CHUNK_ROWS)]

    def encode() -> BlockWriter:
        writer = BlockWriter(BlockOptions(target_bytes=4096))
        for chunk in chunks:
            writer.add(chunk)
        writer.finish()
        return writer

    writer = encode()
    data = b"".join(writer.take_parts())
    offsets = writer.written.index().offsets
    step = 1024

    def decode() -> int:
        decoded = 0
        for start in range(0, len(offsets) - 1, step):
            part = offsets[start : start + step + 1]
            blocks = memoryview(data)[int(part[0]) : int(part[-1])]
            decoded += len(decode_blocks(blocks, part, version=2, compression=Compression.NONE, path="bench"))
        return decoded

    assert decode() == ROWS
    gigabytes = len(data) / 1e9
    for what, work in (("encode", encode), ("decode", decode)):
        yield BenchLine(name=f"block {what}, {name}", ours=gigabytes / cpu_seconds(work), unit="GB/s", target=TARGET)


def _index_line() -> BenchLine:
    """Unpack, decode and check the index of an SST of 64 MiB with random keys of 25 bytes."""
    keys = sorted(b"user/%020d" % number for number in random_numbers(INDEX_BLOCKS).tolist())
    data_len = 4096 * INDEX_BLOCKS
    stored = seal_section(
        encode_index(BlockIndex.of(range(0, data_len, 4096), keys, data_len=data_len)), Compression.NONE
    )
    info = SstInfo(first_entry=keys[0], index_offset=data_len, index_len=len(stored), filter_offset=data_len)

    def decode() -> SstMeta:
        return decode_meta(info, stored, data_len, path="bench")

    assert len(decode().index) == INDEX_BLOCKS
    name = f"index of {INDEX_BLOCKS:,} blocks, decode"
    return BenchLine(name=name, ours=1000 * cpu_seconds(decode), unit="ms", target=INDEX_TARGET)
