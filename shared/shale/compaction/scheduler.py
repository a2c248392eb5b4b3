"""The seam between the coordinator and what decides which compactions are worth their work (docs/protocol.md 6.7)."""

from collections.abc import Iterable
from typing import Protocol

from shale.types import Compactions, CompactionSpec, Manifest


class CompactionScheduler(Protocol):
    """A policy: values in, values out; it keeps no state and knows no clock but the manifest's."""

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterable[CompactionSpec]:
        """Propose compactions, the most urgent first.

        The coordinator takes as many from the front as it has capacity for, so a policy need not count jobs, and
        makes each when it is asked for, because a database of many segments may want thousands.  Taken together with
        all active compactions, the proposals keep every rule of docs/protocol.md 6.5.
        """
        ...
