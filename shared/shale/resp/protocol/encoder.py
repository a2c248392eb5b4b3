"""Encoding of replies in RESP2 and RESP3 (Redis protocol specification).

Functions encode the types that both versions share; ``RespEncoding``, which the client chooses with ``HELLO``, encodes
the types that differ.
"""

from collections.abc import Iterable, Sequence

from shale.core.lazy_dataclass import dataclass

OK = b"+OK\r\n"
PONG = b"+PONG\r\n"
QUEUED = b"+QUEUED\r\n"
EMPTY_ARRAY = b"*0\r\n"

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def simple(text: str) -> bytes:
    """Encode a simple string; line ends become spaces."""
    return b"+" + text.encode().translate(_LINE_ENDS) + b"\r\n"


def error(text: str) -> bytes:
    """Encode an error; its first word, in upper case, is the error code."""
    return b"-" + text.encode(errors="replace").translate(_LINE_ENDS) + b"\r\n"


def integer(number: int) -> bytes:
    """Encode a 64-bit integer."""
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    """Encode a bulk string."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded items."""
    return b"*%d\r\n" % len(items) + b"".join(items)


def texts(words: Iterable[str]) -> bytes:
    """Encode an array of bulk strings."""
    return array([bulk(word.encode()) for word in words])


@dataclass(frozen=True, slots=True)
class RespEncoding:
    """The encoding of one protocol version.

    Args:
        version: 2 or 3.
        null: the null value.
        null_array: the null array.
        map_head: format of the header of a map.
        set_head: format of the header of a set.
    """

    version: int
    null: bytes
    null_array: bytes
    map_head: bytes
    set_head: bytes

    def map(self, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Encode a map of encoded names and values; in RESP2 it is a flat array."""
        count = len(pairs) if self.version == 3 else 2 * len(pairs)
        return self.map_head % count + b"".join([part for pair in pairs for part in pair])

    def set(self, items: Sequence[bytes]) -> bytes:
        """Encode a set of encoded elements."""
        return self.set_head % len(items) + b"".join(items)

    def text(self, data: bytes) -> bytes:
        """Encode human-readable text."""
        return bulk(data) if self.version == 2 else b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data)


RESP2 = RespEncoding(2, b"$-1\r\n", b"*-1\r\n", b"*%d\r\n", b"*%d\r\n")
RESP3 = RespEncoding(3, b"_\r\n", b"_\r\n", b"%%%d\r\n", b"~%d\r\n")
