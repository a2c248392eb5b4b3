"""Values that name their writer, with bytes that show damage."""

import hashlib
from collections.abc import Iterable

SEPARATOR = b"|"
END_OF_ELEMENT = ","
"""Each element of a list has it, so that a merge operand may follow any value (``concatenate``)."""


def padded(name: str, size: int) -> bytes:
    """Return a value of at least ``size`` bytes that names its writer; the rest follows from the name."""
    head = name.encode() + SEPARATOR
    return head + _filling(name, max(0, size - len(head)))


def name_in(value: bytes | None) -> str | None:
    """Return the name in a value.

    Raises:
        ValueError: the rest of the value does not follow from its name.
    """
    if value is None:
        return None
    head, separator, rest = value.partition(SEPARATOR)
    name = head.decode()
    if separator and rest != _filling(name, len(rest)):
        raise ValueError(f"the value of {name} is damaged: {value[:80]!r}")
    return name


def elements_in(value: bytes | None) -> list[str]:
    """Return the elements of a list that is stored as one value."""
    return value.decode().split(END_OF_ELEMENT)[:-1] if value else []


def joined(elements: Iterable[str]) -> bytes:
    """Return the value that holds these elements, or the merge operand that appends them."""
    return "".join(f"{element}{END_OF_ELEMENT}" for element in elements).encode()


def _filling(name: str, size: int) -> bytes:
    block = hashlib.sha256(name.encode()).hexdigest().encode()
    return (block * (size // len(block) + 1))[:size]
