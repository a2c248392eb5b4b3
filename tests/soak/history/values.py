"""Values that name their writer, with bytes that show damage."""

import hashlib

SEPARATOR = b"|"


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
    return value.decode().split(",") if value else []


def joined(elements: list[str]) -> bytes:
    """Return the value that holds these elements."""
    return ",".join(elements).encode()


def _filling(name: str, size: int) -> bytes:
    block = hashlib.sha256(name.encode()).hexdigest().encode()
    return (block * (size // len(block) + 1))[:size]
