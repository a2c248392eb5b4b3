"""The parts of an SST, each without its checksum: what a file holds whose checksums are right."""

import random

from shale.errors import CorruptionError
from shale.format.blocks import decoder
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.plain import decode_block_plain
from shale.format.blocks.section import open_section, seal_section
from shale.format.sst import index as index_module
from shale.format.sst import stats as stats_module
from shale.format.sst.filter import decode_filters
from shale.format.sst.index import BlockIndex, decode_index
from shale.format.sst.info import TRAILER_SIZE, TailTooShort, decode_sst_info, decode_trailer, encode_trailer
from shale.format.sst.stats import SstStats, decode_stats
from shale.kernels.rows import entries_from_rows
from shale.types import Compression, Entry, FilterFormat
from tests.fuzz import samples
from tests.fuzz.block_mutation import mutate_block
from tests.fuzz.flat_mutation import flat_mutation, mutate_flat
from tests.fuzz.mutation import mutate_bytes, number_bytes, put
from tests.fuzz.oracle import PATH, attempt, require_equal, require_place, without_kernels
from tests.fuzz.target import Difference, Target
from tests.guarded import Side, guarded_array, guarded_numpy

_BASE = 1000
_FLAT = ("shale.format.flat.verifier", "shale.format.flat.accessors", "shale.format.flat.columns")


def _blocks(data: bytes) -> None:
    """Read blocks with a kernel, in guarded memory, and in plain Python.

    The first byte: version 1 or 2, side of the guard page, cut into two blocks, without the checksum.
    """
    options, image = (data or b"\1")[0], data[1:]
    version = 1 + (options & 1)
    images = [image] if not options & 4 else [image[: len(image) // 2], image[len(image) // 2 :]]
    plain = attempt(lambda: [row for each in images for row in decode_block_plain(each, version)])
    with guarded_numpy(Side(options >> 1 & 1)):
        found = attempt(lambda: _kernel_rows(images, version, sealed=not options & 8))
    require_equal("kernel and plain decoder of blocks", found, plain)


def _kernel_rows(images: list[bytes], version: int, *, sealed: bool) -> list[Entry]:
    import numpy as np

    if sealed:
        sections = [seal_section(each, Compression.NONE) for each in images]
        offsets = np.cumsum([_BASE, *map(len, sections)])
        stored = guarded_array(b"".join(sections))
        rows = require_place(
            lambda: decode_blocks(stored.data, offsets, version=version, compression=Compression.NONE, path=PATH),
            offset_max=int(offsets[-1]),
        )
    else:
        places = np.cumsum([_BASE, *map(len, images)])
        rows = require_place(lambda: decoder.decode_images(images, places, version=version, path=PATH))
    return entries_from_rows(rows)


def _index(data: bytes) -> None:
    data_len = int.from_bytes(data[:8], "little") & (1 << 62) - 1
    image = data[8:]

    def read() -> tuple[list[int], list[bytes]]:
        found: BlockIndex = decode_index(guarded_array(image).data, data_len=data_len, path=PATH, offset=_BASE)
        return found.offsets.tolist(), found.first_keys()

    with guarded_numpy(Side(len(data) & 1)):
        found = attempt(lambda: require_place(read, offset_max=_BASE + len(image)))
    with without_kernels(index_module):
        plain = attempt(read)
    require_equal("kernel and plain reader of an index", found, plain)
    if not isinstance(found, CorruptionError):
        index = decode_index(image, data_len=data_len)
        for key in (b"", b"k", *found[1][-1:]):
            first, last = index.block_range_for_key(key)
            assert 0 <= first <= last <= len(index)


def _stats(data: bytes) -> None:
    def read() -> tuple[object, ...]:
        found: SstStats = decode_stats(guarded_array(data).data, path=PATH, offset=_BASE)
        return found.num_rows, found.raw_key_size, found.raw_val_size, found.blocks.tolist()

    with guarded_numpy(Side(len(data) & 1)):
        found = attempt(lambda: require_place(read, offset_max=_BASE + len(data)))
    with without_kernels(stats_module):
        plain = attempt(read)
    require_equal("kernel and plain reader of stats", found, plain)


def _filters(data: bytes) -> None:
    form, image = FilterFormat((data or b"\0")[0] % len(FilterFormat)), data[1:]
    filters = require_place(lambda: decode_filters(image, form, path=PATH, offset=_BASE), offset_max=_BASE)
    for key in (b"", b"user/000001", b"k" * 300):
        filters.may_contain_key(key)
        filters.may_contain_prefix(key)


def _mutate_filters(rng: random.Random, data: bytes) -> bytes:
    """Change counts and lengths of the composite form."""
    at = rng.choice((1, 3, 5 + len(b"_bf")))
    return put(data, at, number_bytes(rng, rng.choice((2, 8))))


def _info(data: bytes) -> None:
    """Read a footer with a right checksum, and one alone."""
    attempt(lambda: require_place(lambda: decode_sst_info(data, path=PATH, base=_BASE), offset_max=_BASE + len(data)))
    from zlib import crc32

    start = 500
    tail = data + crc32(data).to_bytes(4, "big") + start.to_bytes(8, "big") + (2).to_bytes(2, "big")
    require_place(lambda: decode_trailer(tail, object_size=start + len(tail), path=PATH), offset_max=start + len(tail))


def _trailer(data: bytes) -> None:
    """Read the end of a file; the first two bytes say how much of the file comes before it."""
    before = int.from_bytes(data[:2], "little")
    tail = data[2:]
    try:
        require_place(
            lambda: decode_trailer(tail, object_size=before + len(tail), path=PATH), offset_max=before + len(tail)
        )
    except TailTooShort as error:
        if error.start >= before:
            raise Difference(f"a footer begins inside the tail: {error.start}") from error


def _trailers() -> list[bytes]:
    found = []
    for data in samples.ssts():
        start = int.from_bytes(data[-TRAILER_SIZE:-2], "big")
        if start < 1 << 16:
            found.append(start.to_bytes(2, "little") + data[start:])
    _, info = samples.sst(40)
    return [*found, (700).to_bytes(2, "little") + encode_trailer(info, offset=700, version=1)]


def _section(data: bytes) -> None:
    """Unpack a section whose checksum is right; the first byte is the codec."""
    codec = Compression((data or b"\0")[0] % len(Compression))
    stored = seal_section(data[1:], Compression.NONE)
    require_place(lambda: open_section(stored, codec, PATH, _BASE), offset_max=_BASE)


def _encrypted(data: bytes) -> None:
    stored = seal_section(data, Compression.NONE)
    require_place(lambda: open_section(stored, Compression.NONE, PATH, _BASE, transformer=_KEYS), offset_max=_BASE)


_KEYS = samples.transformer()


def _encrypted_sections() -> list[bytes]:
    return [_KEYS.encode(each) for each in (b"", b"a", bytes(500))]


def _packed() -> list[bytes]:
    image = samples.sections()["blocks"][1]
    images = (b"", b"a", image, bytes(5000), image * 9)
    return [bytes([codec]) + seal_section(each, codec)[:-4] for codec in Compression for each in images]


def _mutate_blocks(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.1:
        return bytes([rng.randrange(256)]) + data[1:]
    return data[:1] + mutate_block(rng, data[1:])


def _mutate_index(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.1:
        return mutate_bytes(rng, data[:8])[:8].ljust(8, b"\0") + data[8:]
    return data[:8] + mutate_flat(rng, data[8:], "SsTableIndex")


def _seeded_blocks() -> list[bytes]:
    return [bytes([options]) + each for each in samples.sections()["blocks"] for options in (1, 3, 9, 5)] + [
        bytes([options]) + each for each in samples.blocks_v1() for options in (0, 2, 8)
    ]


def targets() -> list[Target]:
    corrupt = (CorruptionError,)
    parts = samples.sections
    blocks = ("shale.format.blocks.plain", "shale.format.blocks.decoder")
    index, stats, info = (f"shale.format.sst.{name}" for name in ("index", "stats", "info"))
    filters = tuple(f"shale.format.sst.{name}" for name in ("filter", "bloom", "siphash"))
    section = ("shale.format.blocks.section", "shale.format.blocks.compression")
    encrypted = ("shale.format.blocks.section", "shale.crypto.aes_gcm")
    as_stats, as_info = flat_mutation("SstStats"), flat_mutation("SsTableInfo")
    return [
        Target("blocks", _blocks, _seeded_blocks, (), blocks, _mutate_blocks, weight=3),
        Target("index", _index, lambda: parts()["index"], (), (index, *_FLAT), _mutate_index),
        Target("stats", _stats, lambda: parts()["stats"], (), (stats, *_FLAT), as_stats),
        Target("filters", _filters, lambda: parts()["filters"], corrupt, filters, _mutate_filters),
        Target("info", _info, lambda: parts()["info"], corrupt, (info, *_FLAT), as_info),
        Target("trailer", _trailer, _trailers, corrupt, (info,)),
        Target("section", _section, _packed, corrupt, section),
        Target("encrypted section", _encrypted, _encrypted_sections, corrupt, encrypted),
    ]
