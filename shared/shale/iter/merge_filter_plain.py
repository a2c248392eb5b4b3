"""Merge and retention in Python: for small inputs, and the reference that tests compare the kernel with."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter

from shale.kernels.merge_rules import MergeRules, OnExpired
from shale.types import FLAG_EXPIRE_TS, FLAG_TOMBSTONE, Entry


def merge_filter_plain(
    sources: Sequence[Iterable[Entry]], rules: MergeRules, on_expired: OnExpired | None = None
) -> Iterator[Entry]:
    """Merge sources in order of precedence and yield what the rules keep."""
    for _, versions in groupby(_merged(sources), key=attrgetter("key")):
        yield from _kept(versions, rules, on_expired)


def _merged(sources: Sequence[Iterable[Entry]]) -> Iterator[Entry]:
    """Yield all rows in order; of rows with equal key and seq only the first source's (``heapq.merge`` is stable)."""
    last = None
    for entry in merge(*sources, key=lambda entry: (entry.key, -entry.seq)):
        if (entry.key, entry.seq) != last:
            yield entry
        last = (entry.key, entry.seq)


def _kept(versions: Iterable[Entry], rules: MergeRules, on_expired: OnExpired | None) -> list[Entry]:
    kept: list[Entry] = []
    for version in versions:
        if rules.max_seq is not None and version.seq > rules.max_seq:
            continue
        entry = version
        if _is_expired(entry, rules.now_tick):
            if on_expired is not None:
                on_expired(not entry.is_merge, entry.is_merge)
            if entry.is_merge:
                continue
            entry = entry._replace(value=b"", flags=entry.flags & ~FLAG_EXPIRE_TS | FLAG_TOMBSTONE, expire_ts=0)
        kept.append(entry)
        guarded = rules.min_seq is not None and entry.seq > rules.min_seq
        if rules.newest_only and not guarded and not entry.is_merge:
            break
    if rules.drop_tombstones:
        while kept and kept[-1].is_tombstone:
            kept.pop()
    return kept


def _is_expired(entry: Entry, now_tick: int | None) -> bool:
    if now_tick is None or not entry.flags & FLAG_EXPIRE_TS or entry.is_tombstone:
        return False
    return entry.expire_ts <= now_tick
