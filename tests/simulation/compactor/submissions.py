"""Administrators that submit compactions, and the expected result of each submission."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from shale.compaction.entries import with_entries, with_entry
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Compaction, CompactionSpec, Manifest, RunId, TieredSpec, Tree, Ulid
from tests.simulation.compactor.lsm import compactions_of, manifests_of


@dataclass(frozen=True)
class Wrong:
    """A spec that breaks a rule, and the rules that its rejection may name."""

    name: str
    spec: TieredSpec
    rules: tuple[str, ...]


def wrong_specs(tree: Tree) -> list[Wrong]:
    """Return one spec of each kind, for a tree with at least four L0s and three runs with gaps between their ids."""
    l0 = [view.id for view in tree.l0]
    runs = [run.id for run in tree.compacted]
    fresh = RunId(max(runs) + 1)

    def tiered(l0_ids: Sequence[Ulid], run_ids: Sequence[RunId], destination: int) -> TieredSpec:
        return TieredSpec(l0_view_ids=tuple(l0_ids), sorted_runs=tuple(run_ids), destination=RunId(destination))

    return [
        Wrong("nothing at all", tiered((), (), fresh), ("V1",)),
        Wrong("a missing L0", tiered((Ulid(7),), (), fresh), ("V4",)),
        Wrong("a missing run", tiered((), (RunId(999), runs[-1]), runs[-1]), ("V4",)),
        Wrong("L0s that are not the oldest", tiered(l0[:2], (), fresh), ("V7",)),
        Wrong("L0s with a gap", tiered((l0[0], *l0[2:]), (), fresh), ("V7",)),
        Wrong("L0s in the wrong order", tiered(l0[::-1], (), fresh), ("V7",)),
        Wrong("runs with a gap", tiered((), (runs[0], runs[-1]), runs[-1]), ("V10",)),
        Wrong("L0s and an old run", tiered(l0, (runs[-1],), runs[-1]), ("V10",)),
        Wrong("a destination that is too low", tiered(l0, (), min(runs) + 1), ("V5",)),
        Wrong("an existing destination", tiered(l0, (), runs[0]), ("V5", "V6")),
        Wrong("a destination above its runs", tiered((), runs[:2], runs[0]), ("V11",)),
        Wrong("a fresh destination for runs", tiered((), runs[:2], fresh), ("V11",)),
    ]


async def submit(process: SimProcess, *, specs: Sequence[CompactionSpec]) -> list[Ulid]:
    """Submit without validation, as another tool may; return the ids, ascending in the order of the specs."""
    now_ms = process.env.clock.now_ms()
    ids = [process.env.ids.ulid(at_least_ms=now_ms + number) for number in range(len(specs))]
    entries = [Compaction(id=job, spec=spec) for job, spec in zip(ids, specs, strict=True)]
    stored = await compactions_of(process).load()
    await stored.apply(lambda current: with_entries(current.value, entries))
    return ids


def submitted(sim: Simulation, specs: Sequence[CompactionSpec], *, after: float = 0.0) -> list[Ulid]:
    """Let an admin submit after a delay; return the ids."""
    if after:
        sim.run(seconds=sim.rng.uniform(0, after))
    admin = sim.start(submit, "admin", role="admin", specs=specs)
    for _ in range(2):  # the simulation may be paused in between
        sim.run(minutes=1, until=lambda: admin.has_ended)
    jobs: list[Ulid] = admin.result
    return jobs


async def full_compaction(process: SimProcess) -> Ulid:
    """Return the spec of an administrator that merges all runs into the oldest."""
    manifest = (await manifests_of(process).read_latest()).value
    runs = tuple(run.id for run in manifest.tree.compacted)
    (job,) = await submit(process, specs=[TieredSpec(sorted_runs=runs, destination=RunId(min(runs)))])
    return job


async def careless_admin(process: SimProcess, *, times: int) -> None:
    """Submit random requests: valid and invalid sources, orders and destinations, and repetitions."""
    stored = await compactions_of(process).load()
    for _ in range(times):
        await anyio.sleep(process.rng.uniform(0, 8))
        tree = (await manifests_of(process).read_latest()).value.tree
        l0 = [view.id for view in tree.l0]
        runs = [run.id for run in tree.compacted]
        spec = TieredSpec(
            l0_view_ids=tuple(_stretch(process.rng, l0)),
            sorted_runs=tuple(_stretch(process.rng, runs)),
            destination=RunId(process.rng.choice([*runs, *runs, max(runs, default=-1) + 1])),
        )
        for entry in [Compaction(id=process.env.ids.ulid(), spec=spec) for _ in range(process.rng.randint(1, 2))]:
            await stored.refresh()
            await stored.apply(lambda current, entry=entry: with_entry(current.value, entry))


def all_l0(manifest: Manifest, count: int = 1000, *, segment: bytes = b"") -> TieredSpec:
    """Return a spec of the oldest L0s of a tree into a new run."""
    newest = max((run.id for _, tree in manifest.trees() for run in tree.compacted), default=-1)
    views = (manifest.tree_of(segment) or Tree()).l0[-count:]
    ids = tuple(view.id for view in views)
    return TieredSpec(l0_view_ids=ids, destination=RunId(newest + 1), segment=segment)


def runs_into(*runs: int) -> TieredSpec:
    """Return a spec of runs, the newest first, into the oldest of them."""
    return TieredSpec(sorted_runs=tuple(RunId(run) for run in runs), destination=RunId(runs[-1]))


def _stretch(rng: random.Random, things: list) -> list:
    """Choose mostly adjacent sources up to the end of the list, sometimes fewer, sometimes with a gap."""
    chosen = things[rng.randint(0, len(things)) :]
    if chosen and rng.random() < 0.3:
        chosen = chosen[:-1]
    if len(chosen) > 2 and rng.random() < 0.2:
        del chosen[1]
    return chosen
