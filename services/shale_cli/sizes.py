"""Bytes and times as people say them."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(number: float) -> str:
    """Bytes in the largest unit that leaves a number above 1."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{number:.0f} B"


def age(ms: int) -> str:
    """A duration in its largest unit, rounded down: ``3 h``; what lies in the future is ``0 s``."""
    seconds = max(0, ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
