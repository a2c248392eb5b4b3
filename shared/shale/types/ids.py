"""Ids of files, epochs of processes and sequence numbers of rows."""

from typing import NewType, Self

ManifestId = NewType("ManifestId", int)
CompactionsId = NewType("CompactionsId", int)
WalId = NewType("WalId", int)
RunId = NewType("RunId", int)
Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)

U64_MAX = 2**64 - 1
_ALPHABET = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_TEXT_LENGTH = 26
_BYTES = 16


class Ulid(int):
    """128 bits: 48 of milliseconds since 1970, 80 of randomness.  As text: 26 characters of Crockford base 32.

    An ``int``, because manifests compare and hash thousands of them; ``ulid.ULID`` reads and writes the text.  It is
    imported with the first text: importing it takes some 20 ms.
    """

    __slots__ = ()

    @property
    def ms(self) -> int:
        """Milliseconds since 1970; the only part that a rule about time may compare."""
        return self >> 80

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the canonical upper-case form; ``None`` for anything else.

        The check is ours: the library also accepts lower case, under which a key would name another object.
        """
        if len(text) != _TEXT_LENGTH or text[0] > "7" or not _ALPHABET.issuperset(text):
            return None
        from ulid import ULID

        return cls(int(ULID.from_str(text)))

    @classmethod
    def from_parts(cls, ms: int, randomness: int) -> Self:
        """Build one from milliseconds (48 bits) and 80 random bits."""
        return cls((ms & (2**48 - 1)) << 80 | randomness)

    def __str__(self) -> str:
        from ulid import ULID

        return str(ULID(self.to_bytes(_BYTES, "big")))

    def __repr__(self) -> str:
        return f"Ulid({self})"
