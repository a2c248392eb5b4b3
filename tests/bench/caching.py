"""The cost of cache misses, of caches, and of encryption.

Source: docs/how-to/caching.md, docs/how-to/encryption.md.
"""

import os
import tempfile
from collections import OrderedDict
from random import Random

import anyio
import numpy as np

from shale.crypto.aes_gcm import AesGcm
from shale.env import SystemClock
from shale.format.blocks.decoder import decode_blocks
from shale.sst.builder import build_sst
from shale.sst.cache import ENTRY_OVERHEAD_BYTES
from shale.sst.disk_cache import DiskCache, object_name
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.disk_part import PartRange
from shale.sst.meta import decode_meta, meta_span
from shale.sst.options import SstOptions
from shale.types import Compression, Entry
from tests.bench.line import BenchLine, cpu_seconds, seconds
from tests.bench.peers import key_of
from tests.bench.rows import bench_rows, random_numbers
from tests.unit.engine.reading import Shelf

BLOCKS = 5_000
READS = 50_000
PART = 1 << 20


def caching_lines() -> list[BenchLine]:
    """Return all lines."""
    return [*_misses(), *_disk(), *_encryption()]


def trace(skew: float, *, scans: bool) -> list[int]:
    """Return a trace of blocks by popularity, with fifty adjacent ones at intervals."""
    rng = np.random.default_rng(1)
    weights = 1 / np.arange(1, BLOCKS + 1) ** skew
    picks = rng.permutation(BLOCKS)[np.searchsorted(weights.cumsum() / weights.sum(), rng.random(READS))].tolist()
    if not scans:
        return picks
    passes = (range(first, first + 50) for first in rng.integers(0, BLOCKS - 50, READS // 500).tolist())
    return [block for start in range(0, READS, 500) for block in (*picks[start : start + 500], *next(passes))]


def _misses() -> list[BenchLine]:
    keys = sorted(key_of(number) for number in range(BLOCKS))
    rows = [Entry(key, b"v" * 950, seq, 0) for seq, key in enumerate(keys, 1)]
    lines = []
    for scans in (False, True):
        for share in (0.02, 0.1):
            blocks = trace(0.99, scans=scans)
            name = f"misses, room for {share:.0%}{', scans between' if scans else ''}, beside LRU"
            ours = anyio.run(_missed, rows, blocks, share)
            least = _missed_by_lru(blocks, round(share * BLOCKS))
            lines.append(BenchLine(name=name, ours=ours, reference=least, unit="%", target="ratio >= 1"))
    return lines


async def _missed(rows: list[Entry], blocks: list[int], share: float) -> float:
    shelf = Shelf(cache_bytes=0)
    slot = shelf.reader.slot(await shelf.sst(rows))
    meta = await shelf.reader.metadata.load(slot)
    block_bytes = len((await shelf.reader.data_blocks.images(slot, meta, 0, 1))[0]) + ENTRY_OVERHEAD_BYTES
    # The index and the tables of so few blocks would be a large part of so small a cache.
    shelf.reader.cache.budget.resize(meta.size_bytes + 17 * BLOCKS + 600 + round(share * BLOCKS * block_bytes))
    before = shelf.reader.counts.block_misses
    for block in blocks:
        await shelf.reader.data_blocks.images(slot, await shelf.reader.metadata.load(slot), block, block + 1)
    return 100 * (shelf.reader.counts.block_misses - before) / len(blocks)


def _missed_by_lru(blocks: list[int], room: int) -> float:
    kept: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for block in blocks:
        if block in kept:
            kept.move_to_end(block)
            continue
        missed += 1
        kept[block] = None
        if len(kept) > room:
            kept.popitem(last=False)
    return 100 * missed / len(blocks)


def _disk() -> list[BenchLine]:
    with tempfile.TemporaryDirectory() as directory:
        cache = DiskCache(DiskCacheOptions(directory, 64 * PART, PART), SystemClock())
        data = os.urandom(PART)
        names = [object_name("s3://bucket", f"db/compacted/{number}.sst") for number in range(40)]
        write_s = seconds(lambda: [cache.store(name, 0, data) for name in names], rounds=3) / len(names)
        rng = Random(1)
        places = [(rng.choice(names), rng.randrange(255) * 4096) for _ in range(1000)]

        def read() -> None:
            for name, start in places:
                assert cache.load(PartRange(name, 0, PART, start, start + 4096)) is not None

        read_s = seconds(read) / len(places)
    return [
        BenchLine(name="disk cache, write a part of 1 MiB", ours=1e3 * write_s, unit="ms", target="<= 20 ms"),
        BenchLine(name="disk cache, read 4 KiB of a part", ours=1e6 * read_s, unit="us", target="<= 50 us"),
    ]


def _encryption() -> list[BenchLine]:
    rows = bench_rows(random_numbers(200_000))
    megabytes = rows.size_bytes / 1e6
    lines = []
    for name, transformer in (("plain", None), ("AES-GCM", AesGcm({"k": bytes(32)}))):
        options = SstOptions(transformer=transformer)
        data, info = build_sst(rows, options)
        start, end = meta_span(info, "x")
        meta = decode_meta(info, memoryview(data)[start:end], start, transformer=transformer, path="x")
        stored = memoryview(data)[: info.data_len]
        build_s = cpu_seconds(lambda options=options: build_sst(rows, options))  # type: ignore[misc]
        decode_s = cpu_seconds(
            lambda stored=stored, offsets=meta.index.offsets, transformer=transformer: decode_blocks(  # type: ignore[misc]
                stored, offsets, version=2, compression=Compression.NONE, path="x", transformer=transformer
            )
        )
        lines += [
            BenchLine(name=f"build an SST, {name}", ours=megabytes / build_s, unit="MB/s", target="information"),
            BenchLine(name=f"decode its blocks, {name}", ours=megabytes / decode_s, unit="MB/s", target="information"),
        ]
    return lines
