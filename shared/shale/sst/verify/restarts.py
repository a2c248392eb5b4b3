"""Checks that the tables of offsets of block images point to their rows.

Point lookups use the tables; scans do not, so decoding a block does not check them.  The walk goes over all blocks of
a span in parallel, one row of each per step, in numpy.
"""

from dataclasses import field

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.format.blocks.decoder import StoredBlocks
from shale.format.blocks.plain import RESTART_INTERVAL
from shale.kernels.rows import I64, U8
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_TOMBSTONE

_CRC_SIZE = 4
_PADDING = 64
_VARINT_BYTES_MAX = 5


@dataclass(frozen=True, slots=True, eq=False)
class BlockWalk:
    """``rows`` has shape (n,): rows per block.  ``problems``: blocks, and what is wrong with their tables."""

    rows: I64
    problems: tuple[tuple[int, str], ...]


@dataclass(slots=True, eq=False)
class _Walkers:
    """One cursor per block with rows left.  ``at``: offsets in the image; ``ends``: end of the rows."""

    image: U8
    blocks: I64
    at: I64
    starts: I64
    ends: I64
    counts: I64
    problems: dict[int, str] = field(default_factory=dict)

    def narrow(self, keep: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> None:
        for name in ("blocks", "at", "starts", "ends", "counts"):
            setattr(self, name, getattr(self, name)[keep])

    def report(self, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]", what: str) -> None:
        for block in self.blocks[which].tolist():
            self.problems.setdefault(block, what)

    def entry(self, number: int) -> I64:
        """Return entry ``number`` of each table; -1 for shorter tables."""
        places = np.where(number < self.counts, self.ends + 2 * number, 0)
        return np.where(number < self.counts, _u16(self.image, places), -1)


def walk_blocks(blocks: StoredBlocks) -> BlockWalk:
    """Walk over blocks that have been decoded before, so that no row exceeds its block."""
    bounds = blocks.bounds - blocks.bounds[0]
    image = np.concatenate((blocks.image[: int(bounds[-1])], np.zeros(_PADDING, np.uint8)))
    stops = bounds[1:] - (_CRC_SIZE if blocks.has_checksums else 0)
    counts = _u16(image, stops - 2)
    starts = bounds[:-1]
    rows = np.zeros(len(starts), np.int64)
    walkers = _Walkers(image, np.arange(len(starts)), starts.copy(), starts, stops - 2 - 2 * counts, counts)
    step = _step_v2 if blocks.version == 2 else _step_v1
    number = 0
    while len(walkers.blocks):
        step(walkers, number)
        number += 1
        done = walkers.at >= walkers.ends
        if done.any():
            rows[walkers.blocks[done]] = number
            entries = -(-number // RESTART_INTERVAL) if blocks.version == 2 else number
            walkers.report(done & (walkers.counts != entries), f"{number} rows need {entries} offsets")
            walkers.narrow(~done)
    return BlockWalk(rows, tuple(sorted(walkers.problems.items())))


def _step_v2(walkers: _Walkers, number: int) -> None:
    image, at = walkers.image, walkers.at
    shared, head = _varint(image, at)
    suffix, head = _varint(image, head)
    value, head = _varint(image, head)
    if number % RESTART_INTERVAL == 0:
        entry = walkers.entry(number // RESTART_INTERVAL)
        walkers.report(entry != at - walkers.starts, f"its offsets do not lead to row {number}")
        walkers.report(shared != 0, f"row {number} is a restart without its full key")
    tail = head + suffix + value
    walkers.at = tail + 9 + _stamps_size(image[tail + 8])


def _step_v1(walkers: _Walkers, number: int) -> None:
    image, at = walkers.image, walkers.at
    # Offsets beyond 16 bits are cut (docs/reference/format.md 7.3).
    walkers.report(walkers.entry(number) != (at - walkers.starts) & 0xFFFF, f"its offsets do not lead to row {number}")
    tail = at + 4 + _u16(image, at + 2)
    flags = image[tail + 8]
    value_at = tail + 9 + _stamps_size(flags)
    size = _u16(image, value_at) << 16 | _u16(image, value_at + 2)
    walkers.at = np.where(flags & FLAG_TOMBSTONE != 0, value_at, value_at + 4 + size)


def _stamps_size(flags: U8) -> I64:
    sizes: I64 = 8 * ((flags & FLAG_EXPIRE_TS != 0).astype(np.int64) + (flags & FLAG_CREATE_TS != 0))
    return sizes


def _u16(image: U8, at: I64) -> I64:
    return image[at].astype(np.int64) << 8 | image[at + 1]


def _varint(image: U8, at: I64) -> tuple[I64, I64]:
    """Return values and the offsets after them."""
    byte = image[at].astype(np.int64)
    value, at = byte & 0x7F, at + 1
    open_ = byte >= 0x80
    for used in range(1, _VARINT_BYTES_MAX):
        if not open_.any():
            break
        byte = np.where(open_, image[at], 0).astype(np.int64)
        value |= (byte & 0x7F) << (7 * used)
        at = at + open_
        open_ = byte >= 0x80
    return value, at
