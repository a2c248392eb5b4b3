"""A transformer is applied to every section after compression and to nothing else, with and without kernels."""

from typing import Any
from zlib import crc32

import anyio
import pytest

from shale.errors import CorruptionError
from shale.format.blocks.compression import compress
from shale.format.blocks.section import open_section, seal_section
from shale.format.blocks.transform import TransformError
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.sst.wal_builder import build_wal_sst
from shale.types import Compression, Entry
from tests.unit.engine.reading import PATHS, Shelf

ROWS = [Entry(b"k%05d" % key, b"v" * (key % 90), key + 1, 0) for key in range(1500)]


class Marked:
    """A transformer that adds a prefix and counts its calls."""

    def __init__(self) -> None:
        self.encoded: list[bytes] = []

    def encode(self, data: Any) -> bytes:
        self.encoded.append(bytes(data))
        return b"MARK" + bytes(byte ^ 0xFF for byte in bytes(data))

    def decode(self, data: Any) -> bytes:
        if bytes(data[:4]) != b"MARK":
            raise TransformError("there is no mark")
        return bytes(byte ^ 0xFF for byte in bytes(data[4:]))


@pytest.mark.parametrize("compression", Compression)
def test_after_compression_and_before_the_checksum(compression: Compression) -> None:
    sealed = seal_section(b"an image", compression, Marked())
    assert sealed[:4] == b"MARK"
    assert Marked().decode(sealed[:-4]) == compress(compression, b"an image")
    assert int.from_bytes(sealed[-4:], "big") == crc32(sealed[:-4])
    assert bytes(open_section(sealed, compression, transformer=Marked())) == b"an image"
    with pytest.raises(CorruptionError, match=r"x\.sst at byte 7: there is no mark"):
        open_section(seal_section(b"an image", compression), compression, "x.sst", 7, transformer=Marked())


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_every_section_of_an_sst(kernels: bool, compression: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels:
        for module in ("blocks.decoder", "blocks.writer", "sst.index", "sst.stats", "sst.bloom"):
            monkeypatch.setattr(f"shale.format.{module}.use_kernels", lambda: False)
    transformer = Marked()
    options = SstOptions(block_size_bytes=1024, min_filter_keys=1, compression=compression, transformer=transformer)
    data, info = build_sst(rows_from_entries(ROWS), options)
    plain, plain_info = build_sst(
        rows_from_entries(ROWS), SstOptions(block_size_bytes=1024, min_filter_keys=1, compression=compression)
    )
    assert (info.first_entry, info.last_entry) == (plain_info.first_entry, plain_info.last_entry)
    stored_end = info.stats_offset + info.stats_len
    plain_end = plain_info.stats_offset + plain_info.stats_len
    assert len(data) - stored_end == len(plain) - plain_end, "the footer is as ever"
    at = 0
    for image in transformer.encoded:
        assert data[at : at + 4] == b"MARK"
        at += 4 + len(image) + 4
    assert at == stored_end, "nothing between the sections, and nothing left out"


def test_wal_files_too() -> None:
    transformer = Marked()
    data = build_wal_sst(rows_from_entries(ROWS[:50]), Compression.NONE, transformer)
    assert len(transformer.encoded) == 2, "a block and the index"
    assert data[:4] == b"MARK"
    assert ROWS[49].key not in data


def test_a_reader_decodes_rows_and_images() -> None:
    async def run() -> None:
        transformer = Marked()
        shelf = Shelf(transformer=transformer)
        reader = type(shelf.reader)(shelf.store, PATHS, shelf.reader.cache, shelf.reader.env, transformer=transformer)
        sst = await shelf.sst(ROWS)
        rows = await reader.rows(sst, 0, len((await reader.meta(sst)).index))
        assert entries_from_rows(rows) == ROWS
        assert len(await reader.data_blocks.images(reader.slot(sst), await reader.meta(sst), 3, 5)) == 2

    anyio.run(run)
