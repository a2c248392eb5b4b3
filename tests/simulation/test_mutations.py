"""The simulation finds injected defects.

Each mutation replaces one rule of the protocol by a plausible mistake; seeds are tried in order until one ends with a
violation. A mutation that survives its seeds shows that the simulation does not check the rule.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from shale.gc.database import GcDatabase
from shale.gc.passes import Pass
from shale.protocol import rebase
from shale.protocol.boundary import Boundary
from shale.testing.simulation import Simulation, SimulationError
from shale.testing.swarm import SimOptions
from shale.types import Manifest, Tree
from tests.simulation.mutations import seed_that_fails
from tests.simulation.protocol import effects
from tests.simulation.protocol.manifest_processes import run_all_roles
from tests.simulation.whole_system import everything

BY_THE_MARK = pytest.mark.native_only("an insert below the low-water mark is refused, and a deletion raises it")


def sleepers(seed: int) -> None:
    """Run contenders that freeze for short and long times, and a collector."""
    acks = effects.Acknowledged()
    with Simulation(seed, options=SimOptions(freeze=0.01, freeze_s=7200, latency_s=0.1)) as sim:
        sim.watch(effects.toy_rules())
        for name in "abc":
            sim.start(effects.contender, name, acks=acks, rounds=15, pause_s=100.0, probe_max_staleness_s=1e9)
        gc = sim.start(effects.collector, "gc")
        sim.run(hours=20, until=lambda: len(acks.effects) == 45)
        gc.kill()
        sim.check_errors()
        acks.check(effects.final_value(sim))


def sleepers_without_boundaries(seed: int) -> None:
    """Run the same without boundaries, where only the age of proofs protects."""
    acks = effects.Acknowledged()
    off: dict[str, Any] = {"boundary_files_enabled": False}
    with Simulation(seed, options=SimOptions(freeze=0.01, freeze_s=7200, latency_s=0.1)) as sim:
        sim.watch(effects.toy_rules(boundaries=False))
        for name in "abc":
            sim.start(effects.contender, name, acks=acks, rounds=15, pause_s=100.0, **off)
        gc = sim.start(effects.collector, "gc", **off)
        sim.run(hours=20, until=lambda: len(acks.effects) == 45)
        gc.kill()
        sim.check_errors()
        acks.check(effects.final_value(sim, **off))


def crowded(seed: int) -> None:
    run_all_roles(seed, SimOptions(latency_s=0.5), minutes=10)


def daemons(seed: int) -> None:
    """Run all code of the daemons."""
    everything(seed, SimOptions(latency_s=0.3), min_age_s=100.0, minutes=8)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [sleepers, sleepers_without_boundaries, crowded, daemons])
def test_the_unbroken_code_passes(scenario: Callable[[int], object]) -> None:
    """The scenarios pass without a defect; a check that always fails would be useless."""
    for seed in range(3):
        scenario(seed)


@BY_THE_MARK
def test_no_boundary_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def accepting(_boundary: Boundary, _file_id: int) -> None:
        return

    monkeypatch.setattr(Boundary, "check", accepting)
    seed_that_fails(sleepers)


@BY_THE_MARK
def test_boundary_checked_before_the_create(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check must follow the create: the collector may advance in between."""
    from shale.protocol.versioned_store import VersionedStore

    original = VersionedStore.commit

    async def early(store: Any, base_id: int | None, value: Any) -> Any:
        boundary = store._boundary
        await boundary.check((base_id or 0) + 1)

        async def nothing(_file_id: int) -> None:
            return

        boundary.check = nothing
        try:
            return await original(store, base_id, value)
        finally:
            del boundary.check

    monkeypatch.setattr(VersionedStore, "commit", early)
    seed_that_fails(sleepers)


@BY_THE_MARK
def test_a_cached_boundary_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Boundary._read

    async def cached(boundary: Any) -> Any:
        return (boundary._cached, True) if boundary._cached is not None else await original(boundary)

    monkeypatch.setattr(Boundary, "_read", cached)
    seed_that_fails(sleepers)


@BY_THE_MARK
def test_no_limit_on_the_age_of_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    from shale.protocol.sequenced import SequencedFiles

    monkeypatch.setattr(SequencedFiles, "_is_fresh", lambda _files, confirmed_at: confirmed_at is not None)
    seed_that_fails(sleepers_without_boundaries)


@BY_THE_MARK
def test_delete_before_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(_store: object, _target: int) -> None:
        return

    monkeypatch.setattr("shale.protocol.versioned_store.VersionedStore.advance_boundary", later)
    seed_that_fails(sleepers)


def test_the_latest_is_collected_too(monkeypatch: pytest.MonkeyPatch) -> None:
    original = effects.VersionedStore.advance_boundary

    async def too_far(store: Any, target: int) -> None:
        await original(store, target + 1)

    monkeypatch.setattr("shale.protocol.versioned_store.VersionedStore.advance_boundary", too_far)
    seed_that_fails(sleepers)


def test_the_watermark_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all_l0(*, writer: Tree, compactor: Tree) -> Tree:
        return replace(compactor, l0=writer.l0)

    monkeypatch.setattr(rebase, "merge_trees", keep_all_l0)
    seed_that_fails(crowded)


@pytest.mark.parametrize(
    ("rule", "side"), [("rebase_writer", "local"), ("rebase_writer", "remote"), ("rebase_compactor", "local")]
)
def test_one_side_of_a_tree_wins(monkeypatch: pytest.MonkeyPatch, rule: str, side: str) -> None:
    """The tree of one side is kept unchanged, so the work of the other side is lost."""
    original = getattr(rebase, rule)

    def one_sided(local: Manifest, remote: Manifest) -> Manifest:
        winner = {"local": local, "remote": remote}[side]
        merged: Manifest = replace(original(local, remote), tree=winner.tree)
        return merged

    monkeypatch.setattr(rebase, rule, one_sided)
    seed_that_fails(crowded)


@pytest.mark.parametrize("rule", ["rebase_writer", "rebase_compactor"])
def test_local_state_overwrites_the_newer_version(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    def no_rebase(local: Manifest, _remote: Manifest) -> Manifest:
        return local

    monkeypatch.setattr(rebase, rule, no_rebase)
    seed_that_fails(crowded)


@pytest.mark.parametrize("rule", ["rebase_writer", "rebase_compactor"])
def test_checkpoints_of_others_are_dropped(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """A confirmed checkpoint must not disappear, or its SSTs are collected while in use."""
    original = getattr(rebase, rule)

    def forgetful(local: Manifest, remote: Manifest) -> Manifest:
        merged: Manifest = replace(original(local, remote), checkpoints=local.checkpoints)
        return merged

    monkeypatch.setattr(rebase, rule, forgetful)
    seed_that_fails(crowded)


def test_epochs_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from shale.protocol.transactional import Fenceable

    monkeypatch.setattr(Fenceable, "check_epoch", lambda _owner: None)
    seed_that_fails(run_all_roles)


@BY_THE_MARK
def test_the_real_collector_deletes_before_it_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Pass.execute

    async def hasty(
        this: Pass, chunks: Any, delete: Any, *, why: str, boundary: int | None = None, advance: Any = None
    ) -> None:
        await original(this, chunks, delete, why=why)
        if boundary is not None and advance is not None:
            await advance(boundary)

    monkeypatch.setattr(Pass, "execute", hasty)
    seed_that_fails(daemons)


def test_the_real_collector_forgets_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests and SSTs that only a checkpoint references are deleted under its reader."""

    async def none(_database: GcDatabase, _latest: object, **_options: object) -> AsyncIterator[tuple[int, Manifest]]:
        for nothing in ():
            yield nothing

    monkeypatch.setattr(GcDatabase, "checkpointed", none)
    seed_that_fails(daemons)


def test_the_real_collector_has_no_cutoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploaded but unpublished objects are deleted."""

    def everything_unused(files: Any, *, active: Any, cutoff: object) -> list[Any]:
        return [file for file in files if file.id not in active]

    monkeypatch.setattr("shale.gc.sweeps.plan_compacted_gc", everything_unused)
    seed_that_fails(daemons)


@pytest.mark.parametrize("side", ["local", "remote"])
def test_the_real_writer_keeps_one_side(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    def one_sided(local: Manifest, remote: Manifest) -> Manifest:
        winner = {"local": local, "remote": remote}[side]
        return replace(rebase.rebase_writer(local, remote), tree=winner.tree)

    monkeypatch.setattr("shale.engine.flush.writer_manifest.rebase_writer", one_sided)
    seed_that_fails(daemons)


def test_the_real_compactor_does_not_rebase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale_compactor.coordinator.state_writer.rebase_compactor", lambda local, _remote: local)
    seed_that_fails(daemons)


def test_the_real_watermark_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all_l0(*, writer: Tree, compactor: Tree) -> Tree:
        return replace(compactor, l0=writer.l0)

    monkeypatch.setattr(rebase, "merge_trees", keep_all_l0)
    seed_that_fails(daemons)


def test_a_violation_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_rebase(local: Manifest, _remote: Manifest) -> Manifest:
        return local

    monkeypatch.setattr(rebase, "rebase_writer", no_rebase)
    seed = seed_that_fails(crowded)
    with pytest.raises(SimulationError, match=f"seed {seed} "):
        crowded(seed)
