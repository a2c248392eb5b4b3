"""The filter block: named Bloom filters, back to back (docs/reference/format.md 9).

::

    count u16 | per filter: name length u16, name, data length u64, data        (composite, all big-endian)
    data of one filter over whole keys                                           (legacy)

A filter excludes a key only if it is certain that no row has it.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.sst.bloom import BloomFilter, decode_bloom, encode_bloom_pieces
from shale.format.sst.filter_policy import BloomPolicy, PrefixExtractor
from shale.format.sst.siphash import siphash13
from shale.kernels.rows import U64, Rows
from shale.types import FilterFormat

_COUNT = Struct(">H")
_DATA_LENGTH = Struct(">Q")
_BLOOM = "_bf"
_WITHOUT_WHOLE_KEYS = ":wh=0"


@dataclass(frozen=True, slots=True, eq=False)
class NamedFilter:
    """One filter and its stored name.  ``extractor`` is the reader's extractor of that name, if any."""

    name: str
    bloom: BloomFilter
    whole_key: bool
    extractor: PrefixExtractor | None

    def may_contain_key(self, key: bytes) -> bool:
        """Return ``False`` only if no row has this key."""
        if self.whole_key:
            return self.bloom.may_contain(key)
        length = self.extractor.prefix_len(key) if self.extractor else None
        return length is None or self.bloom.may_contain(key[:length])

    def may_contain_prefix(self, prefix: bytes) -> bool:
        """Return ``False`` only if no row's key begins with ``prefix``."""
        length = self.extractor.scan_prefix_len(prefix) if self.extractor else None
        return length is None or self.bloom.may_contain(prefix[:length])


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """All filters of one SST; without any, every key may be there."""

    filters: tuple[NamedFilter, ...] = ()

    @property
    def key_filter(self) -> BloomFilter | None:
        """The filter over whole keys, for lookups that probe it themselves."""
        return next((named.bloom for named in self.filters if named.whole_key), None)

    @property
    def size_bytes(self) -> int:
        """Memory of the bits, for caches."""
        return sum(named.bloom.bits.nbytes for named in self.filters)

    @property
    def answers_keys(self) -> bool:
        """Whether any filter can exclude keys."""
        return any(named.whole_key or named.extractor is not None for named in self.filters)

    def answers_prefix(self, prefix: bytes) -> bool:
        """Return whether any filter can exclude this prefix."""
        return any(named.extractor and named.extractor.scan_prefix_len(prefix) is not None for named in self.filters)

    def may_contain_key(self, key: bytes) -> bool:
        """Return ``False`` only if no row has this key."""
        return all(named.may_contain_key(key) for named in self.filters)

    def may_contain_prefix(self, prefix: bytes) -> bool:
        """Return ``False`` only if no row's key begins with ``prefix``."""
        return all(named.may_contain_prefix(prefix) for named in self.filters)


NO_FILTERS = Filters()
_HASHES_PER_CHUNK = 128 << 10
"""A megabyte: allocations of this size go back to the operating system when they are freed."""


class _Hashes:
    """Hashes in order of arrival, millions for a large SST, in chunks that never move."""

    def __init__(self) -> None:
        self._full: list[U64] = []
        self._last: U64 = np.empty(0, np.uint64)
        self._used = 0

    def add(self, hashes: U64) -> None:
        """Append a copy of the hashes."""
        while len(hashes):
            if self._used == len(self._last):
                self._full += [self._last] if self._used else []
                # A small SST has few hashes, and pages that are never touched take no memory.
                self._last, self._used = np.empty(_HASHES_PER_CHUNK, np.uint64), 0
            fit = min(len(hashes), len(self._last) - self._used)
            self._last[self._used : self._used + fit] = hashes[:fit]
            self._used += fit
            hashes = hashes[fit:]

    def pieces(self) -> list[U64]:
        """Return all hashes as arrays."""
        return [*self._full, self._last[: self._used]]


class FilterHashes:
    """Collects the hashes of one policy, with rows in file order."""

    def __init__(self, policy: BloomPolicy) -> None:
        self.policy = policy
        self._hashes = _Hashes()
        self._last_prefix: bytes | None = None

    def add_rows(self, rows: Rows, key_hashes: U64) -> None:
        """Add rows, and the hashes of their whole keys."""
        extractor = self.policy.prefix_extractor
        if extractor is not None:
            self._hashes.add(self._with_prefixes(rows, key_hashes, extractor))
        elif self.policy.whole_key:
            self._hashes.add(key_hashes)

    def add_hashes(self, key_hashes: U64) -> None:
        """Add the hashes of whole keys, for a policy without prefixes."""
        assert self.policy.prefix_extractor is None, "prefixes need keys"
        if self.policy.whole_key:
            self._hashes.add(key_hashes)

    def encode(self) -> bytes:
        """Return the stored filter."""
        return encode_bloom_pieces(self._hashes.pieces(), self.policy.bits_per_key)

    def _with_prefixes(self, rows: Rows, key_hashes: U64, extractor: PrefixExtractor) -> U64:
        """Return key hashes with those of prefixes; a prefix is added when it differs from the last one."""
        hashes: list[int] = []
        for index in range(len(rows)):
            key = rows.key(index)
            length = extractor.prefix_len(key)
            if length is not None and (prefix := key[:length]) != self._last_prefix:
                hashes.append(siphash13(prefix))
                self._last_prefix = prefix
            if self.policy.whole_key:
                hashes.append(int(key_hashes[index]))
        return np.array(hashes, np.uint64)


def hash_keys(keys: Iterable[bytes]) -> U64:
    """Return the hashes of whole keys, without kernels."""
    return np.array([siphash13(key) for key in keys], np.uint64)


def encode_filters(filters: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the composite block of filters: names and data, in the order of the policies."""
    parts = [_COUNT.pack(len(filters))]
    for name, data in filters:
        encoded = name.encode()
        parts += [_COUNT.pack(len(encoded)), encoded, _DATA_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def decode_filters(
    image: BytesLike,
    filter_format: FilterFormat,
    extractors: Sequence[PrefixExtractor] = (),
    *,
    path: str | None = None,
    offset: int = 0,
) -> Filters:
    """Read an unpacked filter block.

    Args:
        image: the block.
        filter_format: ``SstInfo.filter_format``.
        extractors: the reader's prefix extractors; filters over other prefixes answer for whole keys only.
        path: the object's name, for errors.
        offset: where the block begins in the object, for errors.

    Raises:
        CorruptionError: lengths do not add up.
    """
    try:
        named = [(_BLOOM, image)] if filter_format is FilterFormat.LEGACY else _split(memoryview(image))
        known = {extractor.name: extractor for extractor in extractors}
        return Filters(tuple(_open(name, data, known) for name, data in named if _is_bloom(name)))
    except CorruptionError as error:
        raise CorruptionError(error.message, path=path, offset=offset) from error


def _split(image: memoryview) -> list[tuple[str, memoryview]]:
    def take(size: int) -> memoryview:
        nonlocal image
        if size > len(image):
            raise CorruptionError(f"a filter block ends {size - len(image)} bytes early")
        part, image = image[:size], image[size:]
        return part

    (count,) = _COUNT.unpack(take(_COUNT.size))
    named = []
    for _ in range(count):
        (name_length,) = _COUNT.unpack(take(_COUNT.size))
        name = bytes(take(name_length)).decode(errors="replace")
        (data_length,) = _DATA_LENGTH.unpack(take(_DATA_LENGTH.size))
        named.append((name, take(data_length)))
    if len(image):
        raise CorruptionError(f"{len(image)} bytes after the last filter")
    return named


def _is_bloom(name: str) -> bool:
    return name == _BLOOM or name.startswith((f"{_BLOOM}:p=", f"{_BLOOM}{_WITHOUT_WHOLE_KEYS}"))


def _open(name: str, data: BytesLike, extractors: dict[str, PrefixExtractor]) -> NamedFilter:
    whole_key = not name.endswith(_WITHOUT_WHOLE_KEYS)
    extractor_name = name.removeprefix(_BLOOM).removesuffix(_WITHOUT_WHOLE_KEYS).removeprefix(":p=")
    return NamedFilter(name, decode_bloom(data), whole_key, extractors.get(extractor_name))
