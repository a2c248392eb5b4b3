"""Formats sizes and ages for people; ``settings_values`` parses what people write."""

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_AGE_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def format_size(size_bytes: float) -> str:
    """Format bytes in the largest unit that leaves a number of at least 1: ``1.5 MiB``."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_SIZE_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    return f"{size_bytes:.1f} {_SIZE_UNITS[unit]}" if unit else f"{size_bytes:.0f} B"


def format_age(age_ms: int) -> str:
    """Format an age in its largest unit, rounded down: ``3 h``; a negative one is ``0 ms``."""
    for unit, length_ms in _AGE_UNITS_MS:
        if age_ms >= length_ms:
            return f"{age_ms // length_ms} {unit}"
    return f"{max(age_ms, 0)} ms"
