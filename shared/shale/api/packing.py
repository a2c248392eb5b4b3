"""msgpack, as this interface speaks it."""

from typing import cast

import msgpack


def as_msgpack(value: object) -> bytes:
    """A value as msgpack.

    Raises:
        TypeError: it holds what msgpack does not know.
    """
    # The package's types allow for a packer without a buffer of its own, which gives ``None``.
    return cast("bytes", msgpack.packb(value))
