"""A stored section of an SST: the payload, compressed and optionally transformed, then its CRC-32 as u32 big-endian.

Source: docs/reference/format.md 8.
"""

from struct import Struct
from zlib import crc32

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.blocks.compression import compress, decompress
from shale.format.blocks.refused_sections import REFUSED, SectionKey
from shale.format.blocks.transform import BlockTransformer, TransformError
from shale.types import Compression

CRC_SIZE = 4
_CRC = Struct(">I")


def seal_section(image: BytesLike, compression: Compression, transformer: BlockTransformer | None = None) -> bytes:
    """Compress an image, transform it if there is a transformer, and append the checksum."""
    stored = compress(compression, image)
    if transformer is not None:
        stored = transformer.encode(stored)
    return stored + _CRC.pack(crc32(stored))


def open_section(
    stored: BytesLike,
    compression: Compression,
    path: str | None = None,
    offset: int = 0,
    *,
    transformer: BlockTransformer | None = None,
    image_max: int | None = None,
    kind: str = "block",
) -> BytesLike:
    """Check and unpack a section; one that was refused before is not unpacked again.

    Args:
        stored: the section with its checksum.
        compression: the file's codec.
        path: the object's name, for errors.
        offset: where the section begins in the object, for errors.
        transformer: the transformer that the file was written with.
        image_max: the most bytes that it can have when it is unpacked; ``None``: unknown.
        kind: what it is, for errors.

    Raises:
        CorruptionError: too short, a wrong checksum, or a payload that the transformer or the codec rejects.
    """
    if len(stored) < CRC_SIZE:
        raise CorruptionError(f"a section of {len(stored)} bytes has no checksum", path=path, offset=offset)
    payload = memoryview(stored)[: len(stored) - CRC_SIZE]
    (expected,) = _CRC.unpack_from(stored, len(payload))
    if crc32(payload) != expected:
        raise CorruptionError("checksum mismatch", path=path, offset=offset)
    if REFUSED.refusals and path is not None:
        key = SectionKey(path, len(stored), expected, compression)
        refusal = REFUSED.reason(key, image_max=image_max, transformer=transformer)
        if refusal is not None:
            raise CorruptionError(refusal, path=path, offset=offset)
    try:
        return decompress(compression, payload if transformer is None else transformer.decode(payload), image_max)
    except TransformError as error:
        raise CorruptionError(str(error), path=path, offset=offset) from error
    except CorruptionError as error:
        reason = f"{kind}: {error.message}"
        if path is not None:
            key = SectionKey(path, len(stored), expected, compression)
            REFUSED.add(key, reason, image_max=image_max, transformer=transformer)
        raise CorruptionError(reason, path=path, offset=offset) from error
