"""Processes that destroy databases, and the invariants of each step of a destroy."""

import random
from collections.abc import Sequence
from typing import Any

import anyio

from shale.errors import InvalidDeletion, ShaleError
from shale.format.manifest import decode_manifest
from shale.format.names import manifest_key, parse_manifest_key
from shale.gc.collector import Collector
from shale.gc.hard_destroy import DestroyTarget, HardDestroyResult, destroy
from shale.gc.options import GcOptions, TaskOptions
from shale.gc.soft_destroy import destroy_later
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.markers import DestroyedMark
from shale.testing.mutation_log import Mutation
from shale.testing.sim_process import START_MS
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Checkpoint, Manifest
from tests.simulation.clones.harness import manifests_of, start

GRACE_S = 300.0
DESTROYER = "destroyer"


def target(process: SimProcess, root: str) -> DestroyTarget:
    return DestroyTarget(store=process.store, root=root, env=process.env, metrics=process.metrics)


async def destroyer(process: SimProcess, root: str, *, force: bool = False, after_s: float = 0.0) -> HardDestroyResult:
    await anyio.sleep(after_s)
    return await destroy(target(process, root), force=force)


async def stubborn_destroyer(process: SimProcess, root: str) -> HardDestroyResult:
    """Call ``destroy`` again after each error until it succeeds, but not after a refusal."""
    while True:
        try:
            return await destroy(target(process, root))
        except InvalidDeletion:
            raise
        except ShaleError:
            await anyio.sleep(1)


async def soft_destroyer(process: SimProcess, root: str, *, after_s: float = 0.0) -> DestroyedMark:
    await anyio.sleep(after_s)
    return await destroy_later(target(process, root))


async def checkpointer(
    process: SimProcess, root: str, *, after_s: float = 0.0, lifetime_ms: int | None = None
) -> Checkpoint:
    await anyio.sleep(after_s)
    return await create_checkpoint(await manifests_of(process, root).load(), process.env, lifetime_ms=lifetime_ms)


async def deleting_collector(process: SimProcess, root: str) -> None:
    """Run a collector that deletes a soft-destroyed database; it ends with the database."""
    task = TaskOptions(interval_s=60.0, min_age_s=0.0)
    options = GcOptions(
        manifest=task, wal=task, compacted=task, compactions=task, detach=task, delete_grace_period_s=GRACE_S
    )
    await Collector(process.store, root, process.env, options, process.metrics).run()


def soon(sim: Simulation, main: Any, *args: Any, role: str = "admin", **options: Any) -> Any:
    """Return the result of a process that must succeed, and stop the simulation then."""
    process = start(sim, main, *args, role=role, **options)
    sim.run(hours=3, until=lambda: process.has_ended)
    assert process.error is None, process.error
    assert process.has_ended, "it is still running"
    return process.result


def objects_below(sim: Simulation, root: str) -> list[str]:
    return [key for key in sim.stored if key.startswith(f"{root}/")]


def latest_manifest(sim: Simulation, root: str) -> Manifest | None:
    names = [key for key in objects_below(sim, root) if parse_manifest_key(root, key) is not None]
    return decode_manifest(sim.stored[max(names)], path=max(names)) if names else None


def moments(seed: int, count: int, within_s: float) -> list[float]:
    """Return random times, close enough for operations to overlap."""
    chance = random.Random(f"{seed}/moments")
    return [chance.uniform(0.0, within_s) for _ in range(count)]


class DestroyRules:
    """Invariants of each step of a destroy, by any process.

    Nothing outside the root is deleted, and only manifests of parents are written there.  The marker comes after the
    seal; a destroyer deletes nothing before the marker; the marker is deleted last; a seal drops no live checkpoint.
    """

    def __init__(self, root: str, *, forced: bool = False, siblings: Sequence[str] = ()) -> None:
        self.root = root
        self.forced = forced
        self.siblings = tuple(siblings)
        self._written: dict[str, bytes] = {}
        """All written manifests: of two destroys, one may seal a manifest that the other has just deleted."""

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        below = mutation.key.startswith(f"{self.root}/")
        if mutation.op == "put" and parse_manifest_key(self.root, mutation.key) is not None:
            self._written[mutation.key] = bytes(mutation.data)
        if mutation.role == DESTROYER and not below:
            assert mutation.op == "put", f"{mutation}: outside {self.root}"
            assert "/manifest/" in mutation.key, f"{mutation}: outside {self.root}"
        assert not any(mutation.key.startswith(f"{each}/") for each in self.siblings), f"{mutation}: a sibling"
        if below:
            self._check_step(mutation, sim)

    def _check_step(self, mutation: Mutation, sim: Simulation) -> None:
        marker, latest = f"{self.root}/.deleting", latest_manifest(sim, self.root)
        if mutation.key == marker:
            if mutation.op == "put":
                assert latest is None or is_sealed(latest), f"{mutation}: before the seal"
            else:
                assert not objects_below(sim, self.root), f"{mutation}: something is left"
        elif mutation.op == "delete" and mutation.role == DESTROYER:
            assert marker in sim.stored, f"{mutation}: before the marker"
        elif "/manifest/" in mutation.key and mutation.op == "put" and latest is not None and is_sealed(latest):
            self._check_seal(mutation, sim)

    def _check_seal(self, mutation: Mutation, sim: Simulation) -> None:
        sealed_id = parse_manifest_key(self.root, mutation.key)
        if sealed_id is None or sealed_id == 1 or self.forced:
            return
        base_key = manifest_key(self.root, sealed_id - 1)
        stored = sim.stored.get(base_key)
        data = self._written[base_key] if stored is None else stored
        base = decode_manifest(data, path=base_key)
        now_ms = START_MS + int(sim.loop.time() * 1000)
        lost = [str(entry.id) for entry in base.checkpoints if not entry.is_expired(now_ms)]
        assert not lost, f"{mutation}: the seal drops live checkpoints {lost}"


def is_sealed(manifest: Manifest) -> bool:
    return not manifest.initialized and not manifest.checkpoints
