"""What may be done to a section of an SST between compression and checksum, for instance encryption.

It applies to data blocks, filters, index and stats of compacted SSTs and of WAL files alike, and to nothing else: not
to footers, and so not to the first and the last key of an SST, nor to manifests.

Source: SlateDB slatedb/src/format/sst.rs, ``BlockTransformer``.
"""

from typing import Protocol

from shale.format.buffer import Buffer


class BlockTransformer(Protocol):
    """Two inverse functions of bytes.  Threads call them at the same time."""

    def encode(self, data: Buffer) -> bytes:
        """What is stored of a compressed section."""
        ...

    def decode(self, data: Buffer) -> Buffer:
        """The compressed section of what was stored.

        Raises:
            CannotDecode: the bytes are not of ``encode``, or of one with another key; says no more than that.
        """
        ...


class CannotDecode(Exception):
    """A transformer met bytes that are not its own; readers turn it into ``CorruptionError`` with path and place."""
