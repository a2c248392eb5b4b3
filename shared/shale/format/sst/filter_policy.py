"""What the filters of an SST cover: whole keys, or prefixes of keys.

Apart from the filters themselves (``shale.format.sst.bloom``): settings need these values, and no arrays.
"""

from typing import Protocol

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

BITS_PER_KEY_MAX = 1000


class PrefixExtractor(Protocol):
    """Splits keys into a prefix and the rest.  A function of the user; filters store its name."""

    @property
    def name(self) -> str:
        """The name of the rule; another rule must have another name."""
        ...

    def prefix_len(self, key: bytes) -> int | None:
        """Return the length of a key's prefix; ``None`` if it has none.

        It may depend only on the bytes of that prefix: every key that begins with them has the same prefix.
        """
        ...

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        """Return the length of the prefix of all keys that begin with ``prefix``; ``None`` if they may differ."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPrefix:
    """The first ``length`` bytes; shorter keys have no prefix."""

    name: str
    length: int

    def prefix_len(self, key: bytes) -> int | None:
        """See ``PrefixExtractor``."""
        return self.length if len(key) >= self.length else None

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        """See ``PrefixExtractor``."""
        return self.prefix_len(prefix)


@dataclass(frozen=True, slots=True)
class DelimitedPrefix:
    """Everything up to the first ``delimiter``, which is included; keys without one have no prefix."""

    name: str
    delimiter: bytes

    def prefix_len(self, key: bytes) -> int | None:
        """See ``PrefixExtractor``."""
        place = key.find(self.delimiter)
        return None if place < 0 else place + len(self.delimiter)

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        """See ``PrefixExtractor``."""
        return self.prefix_len(prefix)


@dataclass(frozen=True, slots=True)
class BloomPolicy:
    """The hashes that a filter holds, and the number of bits for each.

    Args:
        bits_per_key: 1 to 1000; with 10, about one absent key in a hundred passes.
        prefix_extractor: also add prefixes, so that scans of a prefix can skip SSTs.
        whole_key: add whole keys; without them, lookups test the key's prefix.
    """

    bits_per_key: int = 10
    prefix_extractor: PrefixExtractor | None = None
    whole_key: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.bits_per_key <= BITS_PER_KEY_MAX:
            raise InvalidRequestError(f"bits_per_key must be between 1 and {BITS_PER_KEY_MAX}")

    @property
    def name(self) -> str:
        """The stored name, which encodes the prefix rule and whether whole keys are in the filter."""
        prefix = f":p={self.prefix_extractor.name}" if self.prefix_extractor else ""
        return f"_bf{prefix}{'' if self.whole_key else ':wh=0'}"
