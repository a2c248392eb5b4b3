"""The expected output of a compaction in plain Python: docs/reference/protocol.md 7.2, without an operator."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from shale.types import FLAG_EXPIRE_TS, FLAG_TOMBSTONE, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The retention rules of a job."""

    min_seq: int
    now_tick: int = -(2**63)
    drop_tombstones: bool = False

    def rows(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the retained rows of all inputs, by key and descending sequence number."""
        ordered = sorted(entries, key=lambda entry: (entry.key, -entry.seq))
        groups = itertools.groupby(ordered, key=lambda entry: entry.key)
        return [entry for _, versions in groups for entry in self._of_one_key([*versions])]

    def _of_one_key(self, versions: list[Entry]) -> list[Entry]:
        kept: list[Entry] = []
        for version in versions:
            entry = version
            if entry.flags & FLAG_EXPIRE_TS and entry.expire_ts <= self.now_tick and not entry.is_tombstone:
                if entry.is_merge:
                    continue
                entry = Entry(entry.key, b"", entry.seq, FLAG_TOMBSTONE, entry.create_ts)
            kept.append(entry)
            if entry.seq <= self.min_seq and not entry.is_merge:
                break
        while self.drop_tombstones and kept and kept[-1].is_tombstone:
            kept.pop()
        return kept
