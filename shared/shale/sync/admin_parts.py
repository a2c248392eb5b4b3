"""Parts of ``shale.sync.Admin``: those of ``shale.Admin``, blocking.  Their errors and arguments stand there."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from shale.admin import checkpoints, garbage, states
from shale.admin.checkpoint_cost import KeptAlone
from shale.admin.garbage import OnProgress
from shale.admin.states import StateView
from shale.engine.settings_values import Duration
from shale.garbage.options import DELETE_GRACE_S, GcOptions, Task
from shale.garbage.passes import Progress
from shale.garbage.plan import GcPlan
from shale.garbage.soft_destroy import DoomState
from shale.protocol.versioned import Versioned, VersionMeta
from shale.sync.background import Background
from shale.types import Checkpoint, Compaction, Compactions, Manifest, Ulid


class CheckpointAdmin:
    """See ``shale.admin.checkpoints.CheckpointAdmin``."""

    def __init__(self, inner: checkpoints.CheckpointAdmin, background: Background) -> None:
        self._inner = inner
        self._background = background

    def create(
        self,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
        *,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Keep the newest state, or the one that another checkpoint keeps."""
        return self._background.call(self._inner.create(lifetime, source, name, checkpoint_id=checkpoint_id))

    def refresh(self, checkpoint_id: UUID | str, lifetime: Duration | None = None) -> Checkpoint:
        """Let a checkpoint live for so long from now on."""
        return self._background.call(self._inner.refresh(checkpoint_id, lifetime))

    def delete(self, checkpoint_id: UUID | str) -> bool:
        """Let go of a state; whether it was there."""
        return self._background.call(self._inner.delete(checkpoint_id))

    def get(self, checkpoint_id: UUID | str) -> Checkpoint:
        """One checkpoint."""
        return self._background.call(self._inner.get(checkpoint_id))

    def kept_alone(self, checkpoint_id: UUID | str) -> KeptAlone:
        """What could be collected if a checkpoint were not there."""
        return self._background.call(self._inner.kept_alone(checkpoint_id))

    def list(self, name: str | None = None) -> tuple[Checkpoint, ...]:
        """All checkpoints in the order in which they were made, or those of a name."""
        return self._background.call(self._inner.list(name))


class StateAdmin:
    """See ``shale.admin.states.StateAdmin``."""

    def __init__(self, inner: states.StateAdmin, background: Background) -> None:
        self._inner = inner
        self._background = background

    def manifest(self, id: int | None = None) -> Versioned[Manifest] | None:  # noqa: A002 - the protocol's name
        """The newest manifest, or a stored version."""
        return self._background.call(self._inner.manifest(id))

    def manifests(self, start: int | None = None, end: int | None = None) -> Iterator[Versioned[Manifest]]:
        """The stored manifests from ``start`` on and below ``end``, read one after the other."""
        for meta in self.manifest_versions(start, end):
            if (found := self.manifest(meta.id)) is not None:
                yield found

    def manifest_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Which manifests are stored."""
        return self._background.call(self._inner.manifest_versions(start, end))

    def compactions(self, id: int | None = None) -> Versioned[Compactions] | None:  # noqa: A002
        """The newest compactions file, or a stored version."""
        return self._background.call(self._inner.compactions(id))

    def compactions_files(self, start: int | None = None, end: int | None = None) -> Iterator[Versioned[Compactions]]:
        """The stored compactions files from ``start`` on and below ``end``, read one after the other."""
        for meta in self.compactions_versions(start, end):
            if (found := self.compactions(meta.id)) is not None:
                yield found

    def compactions_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Which compactions files are stored."""
        return self._background.call(self._inner.compactions_versions(start, end))

    def compaction(self, compaction_id: Ulid, *, file_id: int | None = None) -> Compaction | None:
        """One compaction as the newest compactions file, or a stored version, has it."""
        return self._background.call(self._inner.compaction(compaction_id, file_id=file_id))

    def state_view(self) -> StateView:
        """The newest compactions, and the manifest that was read after them."""
        return self._background.call(self._inner.state_view())


class GarbageAdmin:
    """See ``shale.admin.garbage.GarbageAdmin``; ``on_progress`` is called in the thread of the loop."""

    def __init__(self, inner: garbage.GarbageAdmin, background: Background) -> None:
        self._inner = inner
        self._background = background

    def plan(
        self,
        tasks: Iterable[Task | str] | None = None,
        *,
        min_age: Duration | None = None,
        on_progress: OnProgress | None = None,
    ) -> GcPlan:
        """What one pass would delete.  Nothing is written."""
        return self._background.call(self._inner.plan(tasks, min_age=min_age, on_progress=on_progress))

    def run_once(
        self, options: GcOptions | None = None, *, on_progress: OnProgress | None = None
    ) -> Mapping[str, Progress]:
        """One pass of every task that is on; of a database that is due after a soft destroy, its end."""
        return self._background.call(self._inner.run_once(options, on_progress=on_progress))

    def doom(self, *, grace_s: float = DELETE_GRACE_S) -> DoomState:
        """How far the database is on its way out.  Nothing is written."""
        return self._background.call(self._inner.doom(grace_s=grace_s))

    def run(
        self, plan: GcPlan, *, boundary_files_enabled: bool = True, on_progress: OnProgress | None = None
    ) -> Mapping[str, Progress]:
        """Delete what a plan names and what may be deleted now as well."""
        return self._background.call(
            self._inner.run(plan, boundary_files_enabled=boundary_files_enabled, on_progress=on_progress)
        )
