"""Valid inputs: files of our writers, and the small golden files of SlateDB."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from shale.crypto.aes_gcm import AesGcm
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.info import decode_trailer
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry, SstInfo
from tests.golden_files import golden
from tests.unit.kernels.blocks_v1 import encode_block_v1

KEYS = {"k1": bytes(range(16)), "k2": bytes(range(32))}
_FLAGS = (0, 0, 0, FLAG_TOMBSTONE, FLAG_MERGE, FLAG_EXPIRE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS)


def transformer() -> AesGcm:
    """Return encryption whose nonces repeat, so that files are equal in every run."""
    numbers = iter(range(1 << 40))
    return AesGcm(KEYS, nonces=lambda: next(numbers).to_bytes(12, "big"))


@cache
def rows(count: int, seed: int = 1) -> tuple[Entry, ...]:
    """Return rows in the order of an SST: several versions, all kinds, keys that share prefixes."""
    rng = random.Random(seed)
    found: dict[tuple[bytes, int], Entry] = {}
    for number in range(count):
        key = rng.choice((b"user/%06d" % (number // 2), b"k%d" % number, rng.randbytes(rng.randrange(1, 5))))
        flags = rng.choice(_FLAGS)
        value = b"" if flags & FLAG_TOMBSTONE else rng.choice((b"", b"v" * rng.randrange(60), rng.randbytes(8)))
        stamps = (
            rng.randrange(1 << 41) if flags & FLAG_CREATE_TS else 0,
            rng.randrange(1 << 41) if flags & FLAG_EXPIRE_TS else 0,
        )
        found[key, -number] = Entry(key, value, number + 1, flags, *stamps)
    return tuple(found[each] for each in sorted(found))


def sst(
    count: int,
    compression: Compression = Compression.NONE,
    *,
    block_size: int = 256,
    encryption: BlockTransformer | None = None,
) -> tuple[bytes, SstInfo]:
    """Return an SST of Shale's writer."""
    options = SstOptions(
        block_size_bytes=block_size, compression=compression, min_filter_keys=1, transformer=encryption
    )
    return build_sst(rows_from_entries(list(rows(count))), options)


@cache
def ssts() -> tuple[bytes, ...]:
    """Return whole SSTs: each codec, and small golden files."""
    ours = [sst(count, codec)[0] for codec in Compression for count in (1, 40)]
    theirs = sorted((path.read_bytes() for path in golden("*.sst") if "compacted" in path.parts), key=len)
    return (*ours, *(data for data in theirs if 0 < len(data) < 4096))


@cache
def wal_files() -> tuple[bytes, ...]:
    """Return small golden WAL files, and a fence."""
    files = sorted((path.read_bytes() for path in golden("*.sst") if "wal" in path.parts), key=len)
    return tuple({data: None for data in files if len(data) < 4096})


def files(pattern: str, *, size_max: int = 16_384) -> Sequence[bytes]:
    """Return the contents of golden files, each once."""
    return tuple({path.read_bytes(): None for path in golden(pattern) if path.stat().st_size <= size_max})


@cache
def sections() -> dict[str, tuple[bytes, ...]]:
    """Return the images of the parts of all sample SSTs by kind: blocks, index, filters, stats, info."""
    found: dict[str, list[bytes]] = {name: [] for name in ("blocks", "index", "filters", "stats", "info")}
    for data in ssts():
        info, _ = decode_trailer(data, object_size=len(data))

        def image(start: int, length: int, data: bytes = data, info: SstInfo = info) -> bytes:
            return bytes(open_section(data[start : start + length], info.compression))

        index = image(info.index_offset, info.index_len)
        found["index"].append(info.data_len.to_bytes(8, "little") + index)
        found["info"].append(data[int.from_bytes(data[-10:-2], "big") : -14])
        if info.filter_len:
            found["filters"].append(bytes([info.filter_format]) + image(info.filter_offset, info.filter_len))
        if info.stats_len:
            found["stats"].append(image(info.stats_offset, info.stats_len))
        found["blocks"] += _blocks(data, info, index)
    return {name: tuple(dict.fromkeys(images)) for name, images in found.items()}


def _blocks(data: bytes, info: SstInfo, index: bytes) -> list[bytes]:
    from shale.format.sst.index import decode_index

    bounds = decode_index(index, data_len=info.data_len).offsets.tolist()
    return [bytes(open_section(data[start:end], info.compression)) for start, end in list(pairwise(bounds))[:4]]


@cache
def blocks_v1() -> tuple[bytes, ...]:
    """Return block images of version 1."""
    return tuple(encode_block_v1(list(rows(count))) for count in (1, 5, 30))
