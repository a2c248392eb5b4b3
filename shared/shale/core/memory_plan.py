"""How a process divides its memory: the settings that bound its parts, the sum of them, and what to do when it is full.

Pure functions.  ``memory_account`` counts what the parts hold, and ``service.memory.watch`` acts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shale.core.units import format_size

MIB = 1 << 20
PROCESS_BYTES = 80 * MIB
"""What a daemon holds without any data: the interpreter, the libraries and the kernels."""
_ROUNDED_TO = 64 * 1024
_CACHE_FLOOR_PART = 8
"""Caches keep an eighth of their bytes: without indexes and filters every read would go to the store."""
_SHRINK_AT, _GROW_AT, _REOPEN_AT = 0.90, 0.80, 0.96


class BoundedSize(NamedTuple):
    """A size that must stay below a ``MemoryShare``.

    Args:
        name: the dotted name of the setting.
        default: its value where memory is not scarce.
        part: of the share, if that is derived.
        least_factor: the share is at least this many times the size, if that is given.
    """

    name: str
    default: int
    part: float
    least_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShare:
    """A setting that bounds one part of a process: a size, or a number of things.

    Args:
        name: the dotted name of the setting.
        default: its value where memory is not scarce.
        least: the least value that the process can work with.
        weight: how much of a small memory it gets, relative to the others.
        factor: bytes of memory for each byte, or for each thing.
        counts: whether it is a number of things.
        bounds: settings whose sizes, or numbers, it bounds.
    """

    name: str
    default: int
    least: int
    weight: float
    factor: float = 1.0
    counts: bool = False
    bounds: tuple[BoundedSize, ...] = ()

    def shown(self, value: int) -> str:
        """Return the term of this setting in the sum of all."""
        if self.counts:
            return f"{format_size(round(self.factor))} x {self.name} ({value})"
        factor = "" if self.factor == 1 else f"{self.factor:g} x "
        return f"{factor}{self.name} ({format_size(value)})"

    def needs(self, value: int, each: float) -> bool:
        """Return whether a value takes more than the part of this setting, with ``each`` bytes for a weight of one."""
        return value * self.factor > each * self.weight

    def lowered(self, each: float) -> int:
        """Return the largest value that fits into the part of this setting, see ``needs``."""
        value = int(each * self.weight / self.factor)
        return value if self.counts else value // _ROUNDED_TO * _ROUNDED_TO


def divide_memory(limit_bytes: int, shares: Sequence[MemoryShare], given: Mapping[str, int]) -> dict[str, int]:
    """Return the value of each setting that is not given, so that all together stay below the limit.

    A setting whose weight does not allow the least value gets that; one whose weight allows the default gets that.  The
    others divide the rest.

    Args:
        limit_bytes: of the whole process.
        shares: the settings.
        given: values that are fixed, by name, also of the sizes that shares bound.
    """
    derived = [share for share in shares if share.name not in given]
    fixed = sum(given[share.name] * share.factor for share in shares if share.name in given)
    least = {share.name: _least(share, given) for share in derived}
    most = {share.name: max(share.default, least[share.name]) for share in derived}
    values: dict[str, int] = {}
    rest, left = derived, max(limit_bytes - PROCESS_BYTES - fixed, 0.0)
    while rest:
        each = max(left, 0.0) / sum(share.weight for share in rest)
        known = {share.name: least[share.name] for share in rest if share.needs(least[share.name], each)}
        known = known or {share.name: most[share.name] for share in rest if not share.needs(most[share.name], each)}
        if not known:
            values |= {share.name: max(share.lowered(each), least[share.name]) for share in rest}
            break
        values |= known
        left -= sum(known[share.name] * share.factor for share in rest if share.name in known)
        rest = [share for share in rest if share.name not in known]
    for share in derived:
        for size in share.bounds:
            if size.name not in given:
                values[size.name] = min(size.default, int(values[share.name] * size.part))
    return values


def _least(share: MemoryShare, given: Mapping[str, int]) -> int:
    """Return the least value of a setting, which sizes that it bounds may raise."""
    return max(
        [share.least, *(int(given[size.name] * size.least_factor) for size in share.bounds if size.name in given)]
    )


def needed_bytes(shares: Iterable[MemoryShare], values: Mapping[str, int]) -> int:
    """Return the memory that a process with these settings holds at most."""
    return PROCESS_BYTES + round(sum(values[share.name] * share.factor for share in shares))


def shown_sum(shares: Sequence[MemoryShare], values: Mapping[str, int]) -> str:
    """Return the sum of all settings as a message has it."""
    terms = [f"the process ({format_size(PROCESS_BYTES)})", *(share.shown(values[share.name]) for share in shares)]
    return f"{' + '.join(terms)} = {format_size(needed_bytes(shares, values))}"


class MemoryState(NamedTuple):
    """What a process holds now.

    ``process_bytes``: resident memory.  ``cache_bytes``: the present capacity of the caches, and ``cache_used_bytes``
    what they hold.  ``is_full``: whether writes are refused at present.
    """

    process_bytes: int
    cache_bytes: int
    cache_used_bytes: int
    is_full: bool


class MemoryDecision(NamedTuple):
    """``cache_bytes``: the new capacity of the caches; ``trims``: return freed memory to the kernel."""

    cache_bytes: int
    is_full: bool
    trims: bool


def decide_memory(limit_bytes: int, cache_default_bytes: int, state: MemoryState) -> MemoryDecision:
    """Decide what to do about the memory of a process.

    Above nine tenths of the limit caches give up what is too much, down to a floor.  At the limit writes are refused,
    until there is some room again.

    Args:
        limit_bytes: of the whole process.
        cache_default_bytes: the capacity of the caches where memory is not scarce.
        state: see there.
    """
    held, cache = state.process_bytes, state.cache_bytes
    over = held - int(limit_bytes * _SHRINK_AT)
    if over > 0:
        floor = cache_default_bytes // _CACHE_FLOOR_PART
        cache = max(floor, min(cache, state.cache_used_bytes - over))
    elif (room := int(limit_bytes * _GROW_AT) - held) > 0:
        cache = min(cache_default_bytes, cache + room // 2)
    is_full = held >= limit_bytes * (_REOPEN_AT if state.is_full else 1.0)
    return MemoryDecision(cache, is_full, trims=over > 0)
