"""Decoding small state files once, however many stores of a process read them.

A collector reads the manifest of every checkpoint in every pass; a writer, a compactor and a reader in one process
read the same versions.  Values are immutable, so whoever reads equal bytes may share one.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from shale.errors import CorruptionError
from shale.store.port import Buffer

T = TypeVar("T")
_BYTES_MAX = 32 * 1024
"""Larger files are not kept: all caches together stay within a few megabytes."""
_VALUES_MAX = 64


def decoding_once(decode: Callable[[bytes], T]) -> Callable[[Buffer, str], T]:
    """A decoder of ``(data, path)`` that remembers the last values, but no errors: those name their ``path``."""
    remembered = lru_cache(maxsize=_VALUES_MAX)(decode)

    def decoded(data: Buffer, path: str) -> T:
        try:
            if len(data) > _BYTES_MAX:
                return decode(bytes(data))
            return remembered(bytes(data))
        except CorruptionError as error:
            raise error.at(path) from None

    return decoded
