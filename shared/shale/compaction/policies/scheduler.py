"""The interface between the coordinator and compaction policies.

Source: docs/reference/protocol.md 6.7.
"""

from collections.abc import Iterable
from typing import Protocol

from shale.types import Compactions, CompactionSpec, Manifest


class CompactionScheduler(Protocol):
    """A compaction policy: a pure function without state, and without a clock except the manifest's."""

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterable[CompactionSpec]:
        """Propose compactions, the most urgent first.

        The coordinator takes as many as it has capacity for, so a policy need not count jobs.  It generates proposals
        lazily, because a database with many segments may need thousands.  Together with all active compactions, the
        proposals satisfy the rules of docs/reference/protocol.md 6.5.
        """
        ...
