"""Reads the name of the key that an object is encrypted with, without the key (see ``aes_gcm`` for the layout)."""

import re

from shale.core.bytes_like import BytesLike

FORMAT = 1
"""The first byte of an encrypted section."""
NAME = re.compile(r"[\x21-\x7e]{1,255}")
"""A valid name of a key."""
NAME_BYTES_MAX = 2 + 255
"""So many bytes of an object are enough."""


def key_name_of(head: BytesLike) -> str | None:
    """Return the name of the key of an SST or a WAL file from its first bytes; ``None`` if it is not encrypted.

    The first section of an object is a block.  One that is not encrypted begins with the length of a shared prefix,
    which is 0 for a first row, or with the header of a codec, none of which begins like an encrypted section.
    """
    data = bytes(head)
    if len(data) < 3 or data[0] != FORMAT or len(data) < 2 + data[1]:
        return None
    name = data[2 : 2 + data[1]].decode("ascii", errors="replace")
    return name if NAME.fullmatch(name) else None
