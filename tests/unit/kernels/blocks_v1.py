"""Blocks of format version 1, which releases before 0.11 wrote; we only read them (docs/reference/format.md 7.3)."""

from struct import pack

from shale.format.blocks.plain import shared_len
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry


def encode_block_v1(entries: list[Entry]) -> bytes:
    """A block image; keys share with the first one."""
    rows = bytearray()
    offsets = []
    first = b""
    for entry in entries:
        offsets.append(len(rows))
        shared = shared_len(first, entry.key)
        rows += pack(">HH", shared, len(entry.key) - shared) + entry.key[shared:]
        rows += pack(">QB", entry.seq, entry.flags)
        if entry.flags & FLAG_EXPIRE_TS:
            rows += pack(">q", entry.expire_ts)
        if entry.flags & FLAG_CREATE_TS:
            rows += pack(">q", entry.create_ts)
        if not entry.is_tombstone:
            rows += pack(">I", len(entry.value)) + entry.value
        first = first or entry.key
    return bytes(rows) + b"".join(pack(">H", at & 0xFFFF) for at in offsets) + pack(">H", len(offsets))


def as_v1_reads(entry: Entry) -> Entry:
    """What a reader of version 1 makes of a row: an expiry on a tombstone goes."""
    return entry._replace(flags=entry.flags & ~FLAG_EXPIRE_TS, expire_ts=0) if entry.is_tombstone else entry
