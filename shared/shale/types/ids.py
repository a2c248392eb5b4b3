"""Ids, sequence numbers and epochs.  Files have an id, processes an epoch, rows a seq."""

from typing import NewType, Self

ManifestId = NewType("ManifestId", int)
CompactionsId = NewType("CompactionsId", int)
WalId = NewType("WalId", int)
RunId = NewType("RunId", int)
Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)

U64_MAX = 2**64 - 1
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTERS = frozenset(_ALPHABET)
_DIGITS_OF_PYTHON = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_PAIR_SHIFTS = tuple(range(120, -1, -10))
_TEXT_LENGTH = 26


class Ulid(int):
    """128 bits: 48 of milliseconds since 1970, 80 of chance.  As text: 26 characters of Crockford base 32."""

    __slots__ = ()

    @property
    def ms(self) -> int:
        """Milliseconds since 1970; the only part that a rule about time may compare."""
        return self >> 80

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the canonical upper-case form; ``None`` for anything else."""
        if len(text) != _TEXT_LENGTH or text[0] > "7" or not _CHARACTERS.issuperset(text):
            return None
        return cls(text.translate(_DIGITS_OF_PYTHON), 32)

    @classmethod
    def from_parts(cls, ms: int, chance: int) -> Self:
        """Build one from milliseconds (48 bits) and 80 random bits."""
        return cls((ms & (2**48 - 1)) << 80 | chance)

    def __str__(self) -> str:
        return "".join([_PAIRS[self >> shift & 1023] for shift in _PAIR_SHIFTS])

    def __repr__(self) -> str:
        return f"Ulid({self})"
