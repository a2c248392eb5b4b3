"""Minimal compactors, readers and collectors beside a writer, which cause as many conflicts as the protocol allows."""

from dataclasses import replace

import anyio

from shale.format.names import compacted_prefix, parse_sst_key
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import COMPACTOR, FenceableManifest, ManifestStore
from shale.protocol.rebase import rebase_compactor
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from shale.types import Manifest, RunId, SortedRun


async def l0_promoter(process: SimProcess, *, rounds: int = 40, pause_s: float = 0.3) -> None:
    """Run a compactor that turns the oldest L0 into a separate run, by reference."""
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    await _until_created(manifests)
    stored = await FenceableManifest.claim(await manifests.load(), COMPACTOR)

    def promoted(current: Versioned[Manifest]) -> Manifest | None:
        tree = current.value.tree
        if len(tree.l0) < 2:
            return None
        oldest = tree.l0[-1]
        run_id = RunId(max((run.id for run in tree.compacted), default=-1) + 1)
        moved = replace(
            tree,
            l0=tree.l0[:-1],
            compacted=(SortedRun(id=run_id, ssts=(oldest,)), *tree.compacted),
            last_compacted_l0_sst_view_id=oldest.id,
            last_compacted_l0_sst_id=oldest.sst.id,
        )
        return rebase_compactor(replace(current.value, tree=moved), current.value)

    for _ in range(rounds):
        await stored.refresh()
        await stored.apply(promoted)
        await anyio.sleep(process.rng.uniform(0, pause_s))


async def pinner(process: SimProcess, *, rounds: int = 40, pause_s: float = 0.3) -> None:
    """Create and release checkpoints to cause conflicts."""
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    await _until_created(manifests)
    stored = await manifests.load()
    for _ in range(rounds):
        checkpoint = await create_checkpoint(stored, process.env, lifetime_ms=60_000)
        await anyio.sleep(process.rng.uniform(0, pause_s))
        await release_checkpoints(stored, [checkpoint.id])


async def eager_collector(
    process: SimProcess, *, rounds: int = 60, pause_s: float = 0.5, fences: bool = False, min_age_s: float = 0.0
) -> None:
    """A collector for which a compaction has always just finished.

    ``min_age_s``: of WAL files; 0 is less than any real collector has.

    Source: docs/reference/protocol.md 8.2, 8.5.
    """
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    files = WalStore(process.store, "db")
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        now_ms = process.env.clock.now_ms()
        latest = await manifests.try_read_latest()
        if latest is None:
            continue
        manifest = latest.value
        pinned = [await manifests.read(checkpoint.manifest_id) for checkpoint in manifest.checkpoints]
        if None in pinned:
            continue
        kept = [manifest, *filter(None, pinned)]
        used = {sst_id for one in kept for sst_id in one.ssts()}
        cutoff_ms = min(now_ms, newest_l0_ms(manifest))
        for meta in await process.store.list(compacted_prefix("db")):
            sst_id = parse_sst_key("db", meta.key)
            if sst_id is not None and sst_id.ms < cutoff_ms and sst_id not in used:
                await process.store.delete(meta.key)
        for file in await files.list():
            needed = any(one.replay_after_wal_id < file.id < one.next_wal_sst_id for one in kept[1:])
            is_old = file.last_modified_ms <= now_ms - min_age_s * 1000
            if file.id < manifest.replay_after_wal_id and is_old and not needed and (fences or not file.is_fence):
                await files.delete(file.id)


def start_some_background_actors(sim: Simulation) -> None:
    """Start each of the three in every second seed, within the first seconds."""
    for neighbour, role in ((l0_promoter, "compactor"), (pinner, "reader"), (eager_collector, "gc")):
        if sim.rng.random() < 0.5:
            sim.at(sim.rng.uniform(0, 5), lambda main=neighbour, role=role: sim.start(main, role=role))


async def _until_created(manifests: ManifestStore) -> None:
    while await manifests.try_read_latest() is None:  # noqa: ASYNC110 - a store has no events
        await anyio.sleep(0.5)
