"""What our own policy must not propose for a while: the jobs that an admin has just cancelled (docs/protocol.md 6.13).

A policy has no memory, so it would propose the same job again at the next tick.  Only the very same sources are held
back: as soon as another L0 or run changes what should be merged, the tree is compacted again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from shale.compaction.specs import Source, sources_of
from shale.types import Compaction, CompactionSpec

Sources: TypeAlias = frozenset[Source]


def withhold(
    until_s: Mapping[Sources, float], cancelled: Iterable[Compaction], *, now_s: float, hold_s: float
) -> dict[Sources, float]:
    """Add what was cancelled and drop what has been held back for long enough (monotonic seconds)."""
    kept = {sources: end_s for sources, end_s in until_s.items() if end_s > now_s}
    return kept | {frozenset(sources_of(entry.spec)): now_s + hold_s for entry in cancelled}


def without_withheld(specs: Iterable[CompactionSpec], withheld: Collection[Sources]) -> Iterator[CompactionSpec]:
    """The proposals that nobody has just cancelled, made as they are asked for."""
    return (spec for spec in specs if frozenset(sources_of(spec)) not in withheld)
