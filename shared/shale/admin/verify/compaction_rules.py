"""What must hold of one compactions file.  Pure.

Source: docs/protocol.md 6.2, 6.3, 6.9 and Appendix B 11, 12.
"""

from collections.abc import Iterator
from itertools import pairwise

from shale.admin.verify.manifest_rules import Problem
from shale.sst.verify.codes import Code
from shale.types import Compaction, Compactions, CompactionStatus, Subcompaction, Ulid


def compactions_problems(compactions: Compactions) -> Iterator[Problem]:
    """What is wrong with a version."""
    for entry in compactions.entries:
        yield from (Problem(Code.COMPACTION_ENTRY, f"compaction {entry.id} {what}") for what in _entry_problems(entry))


def outputs_of(entry: Compaction) -> Iterator[Ulid]:
    """What a compaction has written so far, as far as it told."""
    yield from (sst.id for sst in entry.output_ssts)
    for part in entry.ctx.subcompactions if entry.ctx is not None else ():
        yield from (sst.id for sst in part.output_ssts)


def _entry_problems(entry: Compaction) -> Iterator[str]:
    if entry.status is CompactionStatus.RUNNING and entry.worker is None:
        yield "is running, and has no worker"
    if entry.is_active and entry.ctx is not None:
        yield from _range_problems(entry.ctx.subcompactions)


def _range_problems(parts: tuple[Subcompaction, ...]) -> Iterator[str]:
    """The ranges of a compaction cover all keys without overlapping."""
    if not parts:
        return
    if parts[0].range.start.key is not None or parts[-1].range.end.key is not None:
        yield "does not compact all keys"
    for left, right in pairwise(parts):
        if left.range.end.key != right.range.start.key:
            yield "has ranges that do not follow one another"
            return
