"""Which WAL files have to be there, given what manifests say and what is listed.  Pure.

Source: docs/protocol.md 4.3, 8.5.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from shale.admin.verify.versions import holes
from shale.sst.verify.codes import Code
from shale.types import Manifest


@dataclass(frozen=True, slots=True, order=True)
class MissingWal:
    """Files ``first`` to ``last``, which some manifest replays and no listing shows."""

    first: int
    last: int
    code: Code

    @property
    def what(self) -> str:
        """For people."""
        if self.code is Code.WAL_ENDS_EARLY:
            return f"the log ends before it, and a manifest knows of files up to {self.last}"
        if self.first == self.last:
            return "the file is gone, and replay would need it"
        return f"the files from here up to {self.last} are gone, and replay would need them"


def missing_wal(manifest: Manifest, listed: Sequence[int], *, is_latest: bool) -> Iterator[MissingWal]:
    """What is missing for one manifest.

    A manifest that knows of files behind the last one may have been written by an old release that counted them too
    early, unless there is no file at all.

    Args:
        listed: ids, ascending.
        is_latest: the log goes on behind what this version knows of it.
    """
    start, end = int(manifest.replay_after_wal_id) + 1, int(manifest.next_wal_sst_id)
    if is_latest and listed:
        end = max(end, listed[-1] + 1)
    known = (listed[place] for place in range(bisect_left(listed, start), bisect_left(listed, end)))
    for first, last in holes(chain(known, (end,)), start):
        code = Code.WAL_ENDS_EARLY if listed and listed[-1] < first else Code.WAL_MISSING
        yield MissingWal(first, last, code)


def all_missing(counted: Iterable[tuple[Manifest, bool]], listed: Sequence[int]) -> tuple[MissingWal, ...]:
    """What is missing for some manifest, each hole once; of two that begin together the longer one."""
    found: dict[int, MissingWal] = {}
    for manifest, is_latest in counted:
        for missing in missing_wal(manifest, listed, is_latest=is_latest):
            known = found.get(missing.first)
            if known is None or (missing.code is Code.WAL_MISSING, missing.last) > (
                known.code is Code.WAL_MISSING,
                known.last,
            ):
                found[missing.first] = missing
    return tuple(sorted(found.values()))
