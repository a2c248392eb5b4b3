"""The objects of a compaction in the store: all versions of its files, and SSTs without a reference.

Nothing collects garbage during these tests, so the whole history is there.
"""

from dataclasses import dataclass

from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.port import ObjectStore
from shale.types import Compaction, CompactionContext, Compactions, CompactionStatus, Manifest, Ulid

S = CompactionStatus


@dataclass(frozen=True, slots=True)
class Trail:
    """All versions, oldest first, and the sizes of all SSTs in the store."""

    manifests: tuple[Manifest, ...]
    compactions: tuple[Compactions, ...]
    stored: dict[str, int]

    def jobs(self) -> dict[Ulid, list[Compaction]]:
        """Return the versions of every job, oldest first, one per change."""
        jobs: dict[Ulid, list[Compaction]] = {}
        for version in self.compactions:
            for entry in version.entries:
                versions = jobs.setdefault(entry.id, [])
                if not versions or versions[-1] != entry:
                    versions.append(entry)
        return jobs

    def named(self) -> set[str]:
        """Return the SSTs that any manifest names or has named."""
        views = (
            view
            for manifest in self.manifests
            for _, tree in manifest.trees()
            for view in (*tree.l0, *(view for run in tree.compacted for view in run.ssts))
        )
        return {str(view.sst.id) for view in views}

    def outputs(self) -> set[str]:
        """Return the SSTs of all results."""
        return {str(sst.id) for versions in self.jobs().values() for entry in versions for sst in entry.output_ssts}

    @property
    def output_count(self) -> int:
        """Return the number of SSTs of all results."""
        return len(self.outputs())

    def output_bytes(self) -> int:
        """Return the bytes of the SSTs of all results."""
        return sum(self.stored[name] for name in self.outputs())

    def orphaned_bytes(self) -> int:
        """Return the bytes of SSTs that no result uses."""
        named = self.named()
        return sum(size for name, size in self.stored.items() if name not in named)


@dataclass(frozen=True, slots=True)
class Now:
    """The newest versions, read in the order that the protocol demands."""

    compactions: Compactions
    manifest: Manifest

    @property
    def is_settled(self) -> bool:
        """Return whether no L0, no four runs to merge, and no active job is left."""
        tree = self.manifest.tree
        return (
            not tree.l0 and len(tree.compacted) < 4 and not any(entry.is_active for entry in self.compactions.entries)
        )


class Watch:
    """Looks at the newest versions, for the price of a probe while nothing changes."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        env = Env.system()
        self._compactions = CompactionsStore(store, root, env)
        self._manifests = ManifestStore(store, root, env)

    async def now(self) -> Now:
        """Return the newest versions."""
        compactions = await self._compactions.try_read_latest()
        manifest = await self._manifests.read_latest()
        return Now(compactions=compactions.value if compactions else Compactions(), manifest=manifest.value)


async def read_trail(store: ObjectStore, root: str) -> Trail:
    """Read all versions and SSTs."""
    env = Env.system()
    manifests, compactions = ManifestStore(store, root, env), CompactionsStore(store, root, env)
    sizes = {
        meta.key.rpartition("/")[2].removesuffix(".sst"): meta.size for meta in await store.list(f"{root}/compacted/")
    }
    return Trail(
        manifests=tuple([m for version in await manifests.list_versions() if (m := await manifests.read(version.id))]),
        compactions=tuple(
            [c for version in await compactions.list_versions() if (c := await compactions.read(version.id))]
        ),
        stored=sizes,
    )


def check_progress_only_grows(versions: list[Compaction]) -> int:
    """Check that no published work was repeated; return how many SSTs were published before the end."""
    context: CompactionContext | None = None
    for entry in versions:
        if entry.is_active and entry.status is not S.COMPACTED:
            assert entry.ctx is not None or context is None, f"{entry.id} lost its progress as {entry.status.name}"
            context = _extended(context, entry.ctx)
        elif entry.status is S.COMPACTED:
            _extended(context, None, outputs=tuple(sst.id for sst in entry.output_ssts))
    return sum(len(sub.output_ssts) for sub in context.subcompactions) if context is not None else 0


def _extended(
    before: CompactionContext | None, after: CompactionContext | None, *, outputs: tuple[Ulid, ...] | None = None
) -> CompactionContext | None:
    """Return the later progress, which must contain all of the earlier one."""
    if before is None:
        return after
    if after is None:
        published = [sst.id for sub in before.subcompactions for sst in sub.output_ssts]
        assert outputs is not None
        positions = [outputs.index(sst_id) for sst_id in published]  # raises for work that was done again
        assert positions == sorted(positions)
        return before
    assert after.retention_min_seq == before.retention_min_seq
    for old, new in zip(before.subcompactions, after.subcompactions, strict=True):
        assert new.range == old.range
        assert new.output_ssts[: len(old.output_ssts)] == old.output_ssts
    return after
