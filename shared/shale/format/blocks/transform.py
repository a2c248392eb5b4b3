"""The hook between compression and checksum of a section of an SST, for example for encryption.

It applies to data blocks, filters, index and stats of compacted SSTs and of WAL files.  It does not apply to footers,
which hold the first and the last key of an SST, nor to manifests.

Source: SlateDB slatedb/src/format/sst.rs, ``BlockTransformer``.
"""

from typing import Protocol

from shale.core.bytes_like import BytesLike


class BlockTransformer(Protocol):
    """Two inverse functions of bytes.  Several threads call them at once."""

    def encode(self, data: BytesLike) -> bytes:
        """Return the stored form of a compressed section."""
        ...

    def decode(self, data: BytesLike) -> BytesLike:
        """Return the compressed section of a stored form.

        Raises:
            TransformError: the bytes were not made by ``encode`` with this key; the message reveals no more.
        """
        ...


class TransformError(Exception):
    """A transformer cannot decode bytes; readers raise ``CorruptionError`` with path and offset instead."""
