"""The five codecs of SST sections (docs/reference/format.md 8).

``decompress`` trusts no length it reads: a size that a codec cannot produce, or that a decompression bomb would claim,
is refused before memory is allocated.  What a section may hold at most is known from other parts of its file
(``shale.format.sst.image_limits``); without that, only the limits below hold.
"""

import sys
import threading
import zlib
from functools import cache
from struct import Struct
from typing import Any, TypeVar

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.types import Compression

IMAGE_SIZE_FREE = 1 << 30
"""Images up to this many bytes are unpacked at any ratio: a repetitive value is not a bomb, and readers must accept
what writers may write."""
RATIO_MAX = 256
"""Larger images may be at most this many times as large as their stored form."""
RATIO_USUAL = 32
"""Images up to this many times as large as their stored form are unpacked, whatever other parts of the file say."""

_ZLIB_LEVEL = 6
_ZSTD_LEVEL = 3
_LZ4_LENGTH = Struct("<I")
_VARINT_BYTES_MAX = 5
_STEP = 1 << 20
_ImageT = TypeVar("_ImageT", bound=BytesLike)


@cache
def _zstd() -> Any:
    """Return the module of Zstandard, which takes 2 ms; most databases have no compression."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


@cache
def _cramjam() -> Any:
    """Return the module of Snappy and LZ4; it takes 1.6 MB, and most databases use neither."""
    import cramjam

    return cramjam


def compress(compression: Compression, image: BytesLike) -> bytes:
    """Return the stored form of an image, also if it is larger than the image."""
    match compression:
        case Compression.NONE:
            return bytes(image)
        case Compression.SNAPPY:
            return bytes(_cramjam().snappy.compress_raw(image))
        case Compression.ZLIB:
            return zlib.compress(image, _ZLIB_LEVEL)
        case Compression.LZ4:
            return bytes(_cramjam().lz4.compress_block(image, store_size=True))
        case Compression.ZSTD:
            return _pack_zstd(image)


def decompress(compression: Compression, stored: BytesLike, image_max: int | None = None) -> BytesLike:
    """Return the image of a stored form; without compression, the same buffer.

    Args:
        compression: the codec.
        stored: what ``compress`` returned.
        image_max: the most bytes that the image can have; ``None``: unknown.

    Raises:
        CorruptionError: the bytes are not of this codec, or their image exceeds the limits or the memory.  The caller
            adds path and offset.
    """
    if compression is Compression.NONE:
        return stored
    if image_max is None or image_max > IMAGE_SIZE_FREE:
        limit = max(IMAGE_SIZE_FREE, RATIO_MAX * len(stored))
        if image_max is not None:
            limit = min(limit, image_max)
    else:
        limit = max(image_max, RATIO_USUAL * len(stored))
    try:
        match compression:
            case Compression.SNAPPY:
                return _unpack_snappy(stored, limit)
            case Compression.ZLIB:
                return _unpack_zlib(stored, limit)
            case Compression.LZ4:
                return _unpack_lz4(stored, limit)
            case Compression.ZSTD:
                return _unpack_zstd(stored, limit)
    except (_cramjam().DecompressionError, zlib.error, _zstd().ZstdError, ValueError) as error:
        raise CorruptionError(f"cannot unpack {compression.name.lower()}: {error}") from error
    except MemoryError as error:
        what = f"its image, of at most {limit} bytes from {len(stored)}, does not fit into memory"
        raise CorruptionError(what) from error


def _unpack_snappy(stored: BytesLike, limit: int) -> bytes:
    size = 0
    for index, byte in enumerate(bytes(stored[:_VARINT_BYTES_MAX])):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    # A copy of at most 64 bytes takes at least 2 bytes in the stream.
    _check_size(size, min(limit, 64 * len(stored)))
    image = bytes(_cramjam().snappy.decompress_raw(stored))
    return _exact(image, size, len(image))


def _unpack_zlib(stored: BytesLike, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    image = unpacker.decompress(stored, limit + 1)
    _check_size(len(image), limit)
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptionError("a zlib stream is truncated or followed by other bytes")
    return image


def _unpack_lz4(stored: BytesLike, limit: int) -> BytesLike:
    if len(stored) < _LZ4_LENGTH.size:
        raise CorruptionError("an lz4 block lacks its length")
    size: int = _LZ4_LENGTH.unpack_from(stored)[0]
    # One byte of a length code adds at most 255 bytes.
    _check_size(size, min(limit, 255 * len(stored)))
    image = bytearray(size)
    # Only with a buffer of the caller does the codec report how much it wrote; otherwise it pads with zeros.
    written = _cramjam().lz4.decompress_block_into(memoryview(stored)[_LZ4_LENGTH.size :], image, output_len=size)
    return _exact(image, size, int(written))


def _pack_zstd(image: BytesLike) -> bytes:
    packer = _packers().zstd
    packer.set_pledged_input_size(len(image))  # the frame names the size of its image
    packed: bytes = packer.compress(image, packer.FLUSH_FRAME)
    return packed


def _unpack_zstd(stored: BytesLike, limit: int) -> bytes:
    # ``None`` if the frame does not name it, which the types of the library do not say.
    size: int | None = _zstd().get_frame_info(stored).decompressed_size
    if size is not None:
        _check_size(size, limit)
        limit = size
    unpacker = _zstd().ZstdDecompressor()
    # The buffer grows with what the frame holds, not with what it claims.
    image: bytes = unpacker.decompress(stored, limit + 1)
    _check_size(len(image), limit)
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptionError("a zstd frame is truncated or followed by other bytes")
    return image if size is None else _exact(image, size, len(image))


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise CorruptionError(f"an image of {size} bytes or more exceeds the limit of {limit}")


def _exact(image: _ImageT, size: int, unpacked: int) -> _ImageT:
    if unpacked != size:
        raise CorruptionError(f"unpacked {unpacked} bytes instead of {size}")
    return image


class _Packers(threading.local):
    """Contexts for compression, one per thread: they must not be shared.

    Creating one takes as long as compressing half a block.
    """

    def __init__(self) -> None:
        self.zstd = _zstd().ZstdCompressor(level=_ZSTD_LEVEL)


@cache
def _packers() -> _Packers:
    return _Packers()
