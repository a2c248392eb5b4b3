"""Answers as bytes, in RESP2 and RESP3 (the Redis protocol specification).

What both have is a function; what differs is asked of the ``Wire`` that the client chose with ``HELLO``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OK = b"+OK\r\n"
PONG = b"+PONG\r\n"
QUEUED = b"+QUEUED\r\n"
EMPTY_ARRAY = b"*0\r\n"

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def simple(text: str) -> bytes:
    """A short text without line ends."""
    return b"+" + text.encode().translate(_LINE_ENDS) + b"\r\n"


def error(text: str) -> bytes:
    """An error; its first word, in capitals, is its kind."""
    return b"-" + text.encode(errors="replace").translate(_LINE_ENDS) + b"\r\n"


def integer(number: int) -> bytes:
    """A number of 64 bits."""
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    """Any bytes."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: Sequence[bytes]) -> bytes:
    """A list of answers that are encoded already."""
    return b"*%d\r\n" % len(items) + b"".join(items)


def texts(words: Iterable[str]) -> bytes:
    """A list of bulk strings."""
    return array([bulk(word.encode()) for word in words])


@dataclass(frozen=True, slots=True)
class Wire:
    """One version of the protocol.

    Args:
        version: 2 or 3.
        null: nothing, where a value could be.
        null_array: nothing, where an array could be.
        map_head: begins a map of so many pairs.
        set_head: begins a set of so many elements.
    """

    version: int
    null: bytes
    null_array: bytes
    map_head: bytes
    set_head: bytes

    def map(self, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Names and values, both encoded already; in RESP2 one list of both."""
        count = len(pairs) if self.version == 3 else 2 * len(pairs)
        return self.map_head % count + b"".join([part for pair in pairs for part in pair])

    def set(self, items: Sequence[bytes]) -> bytes:
        """Elements in no order."""
        return self.set_head % len(items) + b"".join(items)

    def text(self, data: bytes) -> bytes:
        """Text for people."""
        return bulk(data) if self.version == 2 else b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data)


RESP2 = Wire(2, b"$-1\r\n", b"*-1\r\n", b"*%d\r\n", b"*%d\r\n")
RESP3 = Wire(3, b"_\r\n", b"_\r\n", b"%%%d\r\n", b"~%d\r\n")
