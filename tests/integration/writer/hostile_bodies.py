"""Bodies below every limit of bytes, of which a decoder would make many times their size."""

from collections.abc import Callable

SIZE = 28 << 20
"""Below the default of ``http.max_body_bytes``."""
MSGPACK = "application/msgpack"
JSON = "application/json"


def packed_items(item: bytes, size: int, name: bytes = b"ops") -> bytes:
    """A map with a list of so many bytes of one msgpack item."""
    count = size // len(item)
    return b"\x81" + bytes([0xA0 | len(name)]) + name + b"\xdd" + count.to_bytes(4, "big") + item * count


def packed_map(size: int) -> bytes:
    """A map of fields with the same name."""
    count = size // 2
    return b"\xdf" + count.to_bytes(4, "big") + b"\xa0\xc0" * count


def packed_text(size: int) -> bytes:
    """One text, of which each character takes four bytes once it is decoded."""
    return b"\x81\xa3ops\xdb" + size.to_bytes(4, "big") + b"a" * (size - 4) + "😀".encode()


def items(item: bytes, size: int, name: bytes = b"ops") -> bytes:
    """An object with a list of so many bytes of one JSON item."""
    return b'{"%b":[' % name + b",".join([item] * (size // (len(item) + 1))) + b"]}"


def text(size: int) -> bytes:
    """One JSON text, as ``packed_text``."""
    return b'{"ops":"' + b"a" * (size - 4) + "😀".encode() + b'"}'


KINDS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "empty maps": (MSGPACK, lambda size: packed_items(b"\x80", size)),
    "nested lists": (MSGPACK, lambda size: b"\x81\xa3ops" + b"\x91" * size + b"\xc0"),
    "lists of lists": (MSGPACK, lambda size: packed_items(b"\x91\x91\xc0", size)),
    "numbers": (MSGPACK, lambda size: packed_items(b"\xcb\x40\x09\x21\xfb\x54\x44\x2d\x18", size)),
    "texts": (MSGPACK, lambda size: packed_items(b"\xa2ab", size)),
    "extensions": (MSGPACK, lambda size: packed_items(b"\xd4\x05\x00", size)),
    "times": (MSGPACK, lambda size: packed_items(b"\xd6\xff\x00\x00\x00\x01", size)),
    "repeated fields": (MSGPACK, packed_map),
    "wide text": (MSGPACK, packed_text),
    "JSON lists": (JSON, lambda size: items(b"[]", size)),
    "JSON objects": (JSON, lambda size: items(b"{}", size)),
    "JSON nested lists": (JSON, lambda size: b'{"ops":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"),
    "JSON numbers": (JSON, lambda size: items(b"1e9", size)),
    "JSON texts": (JSON, lambda size: items(b'"ab"', size)),
    "JSON repeated fields": (JSON, lambda size: b"{" + b",".join([b'"":0'] * (size // 5)) + b"}"),
    "JSON wide text": (JSON, text),
    "JSON of one number": (JSON, lambda size: b'{"ops":' + b"9" * size + b"}"),
}
