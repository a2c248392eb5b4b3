"""Sections that were refused after they had been unpacked, at least in part: their bytes are not unpacked again.

A section is known by its object, length, checksum and codec, so one that was repaired in the store is read.
"""

from typing import Final, NamedTuple

from shale.format.blocks.transform import BlockTransformer
from shale.types import Compression

REFUSED_MAX: Final = 1024
"""Bounds the memory of all entries to about half a megabyte."""


class SectionKey(NamedTuple):
    """The path of an object, and bytes, checksum and codec of a section in it."""

    path: str
    size: int
    checksum: int
    compression: Compression


class SectionRefusal(NamedTuple):
    """Why a section was refused; ``image_max`` and ``transformer`` as they were then.

    The transformer is held, so that no other one has its identity later.
    """

    reason: str
    image_max: int | None
    transformer: BlockTransformer | None


class RefusedSections:
    """The newest refused sections of this process.  Threads may use it: each step is one operation of a dict."""

    def __init__(self) -> None:
        self.refusals: dict[SectionKey, SectionRefusal] = {}
        """All of them, oldest first; only for a check whether there are any, which is made for each section."""

    def add(self, key: SectionKey, reason: str, *, image_max: int | None, transformer: BlockTransformer | None) -> None:
        """Remember a section.

        Args:
            key: the section.
            reason: the message of the error.
            image_max: the limit with which it was unpacked; ``None``: a higher one would not help.
            transformer: the transformer with which it was unpacked.
        """
        while len(self.refusals) >= REFUSED_MAX and key not in self.refusals:
            self.refusals.pop(next(iter(self.refusals), key), None)
        self.refusals[key] = SectionRefusal(reason, image_max, transformer)

    def reason(self, key: SectionKey, *, image_max: int | None, transformer: BlockTransformer | None) -> str | None:
        """Return why a section was refused; ``None``: it was not, or with a lower limit or another transformer."""
        found = self.refusals.get(key)
        if found is None or found.transformer is not transformer:
            return None
        is_same = found.image_max is None or (image_max is not None and image_max <= found.image_max)
        return found.reason if is_same else None

    def clear(self) -> None:
        """Forget everything."""
        self.refusals.clear()


REFUSED: Final = RefusedSections()
