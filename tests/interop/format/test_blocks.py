"""Every SST that SlateDB 0.17 wrote: kernel and plain codec decode equal blocks, and encode equal bytes."""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.plain import decode_block_plain
from shale.format.blocks.section import open_section
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.format.sst.index import decode_index
from shale.format.sst.info import decode_trailer
from shale.kernels.rows import Rows, entries_from_rows
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.sst.wal_builder import build_wal_sst
from shale.types import Compression, Entry, SstInfo, SstType
from tests.golden_files import golden, label

SSTS = [path for path in golden("*.sst") if path.stat().st_size > 10]
P4 = FixedPrefix("p4", 4)
POLICIES = {
    "prefix_filter": (
        BloomPolicy(bits_per_key=12, prefix_extractor=P4),
        BloomPolicy(bits_per_key=8, prefix_extractor=P4, whole_key=False),
        BloomPolicy(bits_per_key=16),
    )
}
BLOCK_SIZES = (1024, 4096)
REPRODUCIBLE = (Compression.NONE, Compression.ZSTD)
"""The Rust libraries of the other codecs may choose other bytes (docs/reference/format.md 8)."""


def read(path: Path) -> tuple[bytes, SstInfo, Rows]:
    data = path.read_bytes()
    info, version = decode_trailer(data, object_size=len(data), path=path.name)
    stored_index = data[info.index_offset : info.index_offset + info.index_len]
    index = decode_index(open_section(stored_index, info.compression), data_len=info.data_len, path=path.name)
    blocks = memoryview(data)[: info.data_len]
    rows = decode_blocks(blocks, index.offsets, version=version, compression=info.compression, path=path.name)
    bounds = index.offsets.tolist()
    plain: list[Entry] = []
    for start, end in pairwise(bounds):
        plain += decode_block_plain(open_section(blocks[start:end], info.compression), version)
    assert entries_from_rows(rows) == plain
    return data, info, rows


@pytest.fixture(params=["kernels", "plain"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        for module in (
            "shale.format.blocks.decoder",
            "shale.format.sst.bloom",
            "shale.format.blocks.writer",
            "shale.sst.builder",
        ):
            monkeypatch.setattr(f"{module}.use_kernels", lambda: False)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("path", SSTS, ids=label)
def test_rows_written_again_give_the_same_file(path: Path) -> None:
    data, info, rows = read(path)
    if info.compression not in REPRODUCIBLE:
        return
    if info.sst_type is SstType.WAL:
        assert build_wal_sst(rows, info.compression) == data
        return
    policies = next((value for case, value in POLICIES.items() if case in path.parts), (BloomPolicy(),))
    written = [
        build_sst(
            rows,
            SstOptions(
                block_size_bytes=block_size,
                compression=info.compression,
                min_filter_keys=0 if info.filter_len else 1 << 30,
                filter_policies=policies,
            ),
        )
        for block_size in BLOCK_SIZES
    ]
    assert (data, info) in written


def test_the_rows_are_those_that_were_written() -> None:
    """One explicit case; readers of whole databases compare the rest."""
    path = golden("large_values/db/compacted/*.sst")[0]
    _, _, rows = read(path)
    lengths = np.diff(rows.val_offsets)
    assert int(lengths.max()) == 70_000
    assert max(len(rows.key(index)) for index in range(len(rows))) == 65_535
    assert len({hashlib.sha256(rows.value(index)).digest() for index in range(len(rows))}) == len(rows)
