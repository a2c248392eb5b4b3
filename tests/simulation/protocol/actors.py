"""A writer, a compactor, a collector and an admin reduced to what they do to the manifest.

An SST is a text: the names of its rows, one a line.  So "no row is lost, none appears twice" can be read off the store
at any time, and thousands of seeds take seconds.  What is under test is real: stores, epochs, rebases, checkpoints.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import anyio

from shale.errors import ObjectVersionExists
from shale.format.names import sst_key
from shale.protocol import rebase
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints, remove_expired_checkpoints
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import COMPACTOR, WRITER, FenceableManifest, ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Manifest, RunId, Seq, SortedRun, Sst, SstInfo, SstView, Ulid, WalId
from tests.simulation.first_version import load_or_create

ROOT = "db"
MIN_AGE_MS = 300_000


@dataclass
class Rows:
    """The rows that were written: started, and acknowledged."""

    begun: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    def check(self, sim: Simulation, manifest: Manifest) -> None:
        """Compare the rows that a manifest shows with what was acknowledged."""
        found = Counter(row for view in manifest.views() for row in rows_of(sim, view.sst.id))
        twice = sorted(row for row, count in found.items() if count > 1)
        assert not twice, f"rows appear twice: {twice}"
        assert set(self.acknowledged) <= set(found), f"rows are lost: {sorted(set(self.acknowledged) - set(found))}"
        assert set(found) <= set(self.begun), "rows come from nowhere"


def rows_of(sim: Simulation, sst_id: Ulid) -> list[str]:
    return sim.memory.objects[sst_key(ROOT, sst_id)].data.decode().split("\n")


def manifests_of(process: SimProcess, **options: object) -> ManifestStore:
    chosen = ProtocolOptions(component=process.role, **options)  # type: ignore[arg-type]
    return ManifestStore(process.store, ROOT, process.env, process.metrics, chosen)


async def upload(process: SimProcess, rows: list[str], at_least_ms: int) -> SstView:
    sst_id = process.env.ids.ulid(at_least_ms)
    await process.store.put(sst_key(ROOT, sst_id), "\n".join(rows).encode())
    info = SstInfo(first_entry=rows[0].encode(), last_entry=rows[-1].encode(), index_offset=len(rows), index_len=1)
    return SstView.identity(Sst(id=sst_id, info=info))


async def commit_writer(owner: FenceableManifest, local: Manifest) -> Manifest:
    """Write a writer's local state, with retries after conflicts."""
    conflicts = 0
    while True:
        try:
            return (await owner.update(Versioned(owner.id, local))).value
        except ObjectVersionExists:
            conflicts += 1
            await owner.recover(conflicts)
            local = rebase.rebase_writer(local, owner.value)


async def commit_compactor(owner: FenceableManifest, local: Manifest, base_id: int) -> Manifest:
    """Write a compactor's local state, with retries after conflicts."""
    conflicts = 0
    while True:
        try:
            return (await owner.update(Versioned(base_id, local))).value
        except ObjectVersionExists:
            conflicts += 1
            base_id = (await owner.recover(conflicts)).id
            local = rebase.rebase_compactor(local, owner.value)


async def writer(process: SimProcess, rows: Rows, *, flushes: int, pause_s: float = 20.0) -> None:
    """Flush tables of three rows to L0."""
    owner = await Fenceable.claim(await load_or_create(manifests_of(process), Manifest()), WRITER)
    for number in range(flushes):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        names = [f"{process.name}.{number}.{letter}" for letter in "abc"]
        rows.begun += names
        local = owner.prepare_dirty().value
        view = await upload(process, names, newest_l0_ms(local))
        local = replace(
            local,
            tree=replace(local.tree, l0=(view, *local.tree.l0)),
            last_l0_seq=Seq(local.last_l0_seq + len(names)),
            replay_after_wal_id=local.next_wal_sst_id,
            next_wal_sst_id=WalId(local.next_wal_sst_id + 1),
        )
        await commit_writer(owner, local)
        rows.acknowledged += names


async def compactor(process: SimProcess, *, pause_s: float = 30.0) -> None:
    """Merge the older half of L0, sometimes with the newest run, under a checkpoint that pins the inputs."""
    owner = await Fenceable.claim(await load_or_create(manifests_of(process), Manifest()), COMPACTOR)
    while True:
        await anyio.sleep(process.rng.uniform(0, pause_s))
        await owner.refresh()
        tree = owner.value.tree
        taken = tree.l0[len(tree.l0) // 2 :]
        if len(taken) < 2:
            continue
        with_run = bool(tree.compacted) and process.rng.random() < 0.5
        run_views = tree.compacted[0].ssts if with_run else ()
        merged = sorted(row for view in (*taken, *run_views) for row in rows_of(process.sim, view.sst.id))
        output = await upload(process, merged, max(view.sst.id.ms for view in taken))
        await create_checkpoint(owner, process.env, lifetime_ms=900_000)
        local = rebase.rebase_compactor(compacted(owner.value, taken, output, with_run=with_run), owner.value)
        base_id = owner.id
        await anyio.sleep(process.rng.uniform(0, pause_s / 10))
        await commit_compactor(owner, local, base_id)


def compacted(manifest: Manifest, taken: tuple[SstView, ...], output: SstView, *, with_run: bool) -> Manifest:
    tree = manifest.tree
    newest = tree.compacted[0].id if tree.compacted else -1
    run = SortedRun(id=RunId(newest if with_run else newest + 1), ssts=(output,))
    taken_ids = {view.id for view in taken}
    tree = replace(
        tree,
        l0=tuple(view for view in tree.l0 if view.id not in taken_ids),
        compacted=(run, *(tree.compacted[1:] if with_run else tree.compacted)),
        last_compacted_l0_sst_view_id=taken[0].id,
        last_compacted_l0_sst_id=taken[0].sst.id,
    )
    return replace(manifest, tree=tree)


async def admin(process: SimProcess, *, pause_s: float = 60.0) -> None:
    """Create checkpoints and delete some of them again."""
    stored = await load_or_create(manifests_of(process), Manifest())
    while True:
        await anyio.sleep(process.rng.uniform(0, pause_s))
        lifetime_ms = process.rng.choice((60_000, 600_000))
        checkpoint = await create_checkpoint(stored, process.env, lifetime_ms=lifetime_ms, name=process.name)
        if process.rng.random() < 0.5:
            await anyio.sleep(process.rng.uniform(0, pause_s))
            await release_checkpoints(stored, [checkpoint.id])


async def collector(process: SimProcess, *, interval_s: float = 60.0) -> None:
    """Collect checkpoints, manifests and SSTs (docs/reference/protocol.md 8.1 to 8.3)."""
    manifests = manifests_of(process)
    published: set[Ulid] = set()
    await load_or_create(manifests, Manifest())
    while True:
        now_ms = process.env.clock.now_ms()
        await remove_expired_checkpoints(await manifests.load(), now_ms)
        await collect_manifests(manifests, now_ms)
        await collect_ssts(process, manifests, published)
        await anyio.sleep(interval_s)


async def collect_manifests(manifests: ManifestStore, now_ms: int) -> None:
    versions = await manifests.list_versions()
    latest = await manifests.read(versions[-1].id)
    assert latest is not None
    pinned = {checkpoint.manifest_id for checkpoint in latest.checkpoints}
    old = [version.id for version in versions[:-1] if now_ms - version.last_modified_ms > MIN_AGE_MS]
    old_ids = [version_id for version_id in old if version_id not in pinned]
    if old_ids:
        await manifests.advance_boundary(max(old_ids))
        for version_id in old_ids:
            await manifests.delete(version_id)


async def collect_ssts(process: SimProcess, manifests: ManifestStore, published: set[Ulid]) -> None:
    """Delete SSTs that were published once and are no longer referenced.

    Which unpublished ones may go is the business of docs/reference/protocol.md 8.2, and of the real collector's tests.
    """
    latest = (await manifests.read_latest()).value
    active = set(latest.ssts())
    for checkpoint in latest.checkpoints:
        pinned = await manifests.read(checkpoint.manifest_id)
        if pinned is None:
            return  # never delete on incomplete knowledge
        active |= set(pinned.ssts())
    for sst_id in sorted(published - active):
        await process.store.delete(sst_key(ROOT, sst_id))
    published.intersection_update(active)
    published |= active
