"""A namespace whose value is a list of effects: the protocol without the formats.

Every process adds effects with names of its own, so "exactly once" and "in a chain" can be read off the value.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.names import manifest_key, parse_manifest_key
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochField
from shale.protocol.versioned import Namespace, Versioned, database_namespace
from shale.protocol.versioned_store import VersionedStore
from shale.testing.mutation_log import Mutation
from shale.testing.sequenced_invariants import SequencedInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Epoch
from tests.simulation.first_version import load_or_create

ROOT = "toy"
MIN_AGE_MS = 300_000


@dataclass(frozen=True)
class Effects:
    epoch: Epoch = Epoch(0)
    done: tuple[str, ...] = ()

    def with_effect(self, name: str) -> "Effects | None":
        return None if name in self.done else replace(self, done=(*self.done, name))


def encode(effects: Effects) -> bytes:
    return ",".join((str(effects.epoch), *effects.done, ".")).encode()


def decode(data: BytesLike, path: str) -> Effects:
    epoch, *done = bytes(data).decode().split(",")
    if not done or done.pop() != ".":
        raise CorruptionError("cut off", path=path)
    return Effects(Epoch(int(epoch)), tuple(done))


TOY: Namespace[Effects] = database_namespace(
    ROOT, "manifest", key=manifest_key, parse=parse_manifest_key, encode=encode, decode=decode
)
OWNER: EpochField[Effects] = EpochField("owner", lambda value: value.epoch, lambda value, e: replace(value, epoch=e))


def check_chain(base: Effects, new: Effects, mutation: Mutation) -> None:
    """Each version is the one before plus one effect, or plus an epoch."""
    assert new.done[: len(base.done)] == base.done, f"{mutation} lost {set(base.done) - set(new.done)}"
    assert len(new.done) - len(base.done) + new.epoch - base.epoch == 1, f"{mutation} is not one step"
    assert len(set(new.done)) == len(new.done), f"{mutation} did something twice"


def toy_store(process: SimProcess, **options: Any) -> VersionedStore[Effects]:
    return VersionedStore(process.store, TOY, process.env, process.metrics, ProtocolOptions(**options))


@dataclass
class Acknowledged:
    """The effects that processes of one simulation received as committed."""

    effects: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)

    def check(self, final: Effects) -> None:
        """Check that every acknowledged effect exists exactly once, and no other effect exists."""
        assert len(set(final.done)) == len(final.done), f"done twice: {final.done}"
        assert set(self.effects) <= set(final.done), f"lost: {set(self.effects) - set(final.done)}"
        assert set(final.done) <= set(self.begun), f"made up: {set(final.done) - set(self.begun)}"


async def contender(
    process: SimProcess, acks: Acknowledged, *, rounds: int, pause_s: float = 1.0, **options: Any
) -> None:
    """Add ``rounds`` effects, each acknowledged only when ``apply`` returns."""
    store = toy_store(process, **options)
    stored = await load_or_create(store, Effects())
    for number in range(rounds):
        await anyio.sleep(process.rng.uniform(0.0, pause_s))
        name = f"{process.name}.{number}"

        def add(current: Versioned[Effects], name: str = name) -> Effects | None:
            return current.value.with_effect(name)

        acks.begun.append(name)
        await stored.apply(add)
        acks.effects.append(name)


async def collector(
    process: SimProcess, *, min_age_ms: int = MIN_AGE_MS, interval_s: float = 60.0, runs: int = 10**6, **options: Any
) -> None:
    """Delete old versions as docs/reference/protocol.md 8.3 says: the boundary first, the files after."""
    store = toy_store(process, **options)
    for _ in range(runs):
        now_ms = process.env.clock.now_ms()
        versions = await store.list_versions()
        old = [version.id for version in versions[:-1] if now_ms - version.last_modified_ms > min_age_ms]
        if old:
            await store.advance_boundary(max(old))
            for doomed in old:
                await store.delete(doomed)
        await anyio.sleep(interval_s)


async def reading(
    process: SimProcess, seen: list[Versioned[Effects]], *, interval_s: float = 5.0, **options: Any
) -> None:
    """Read the latest version again and again."""
    store = toy_store(process, **options)
    while True:
        latest = await store.try_read_latest()
        if latest is not None:
            seen.append(latest)
        await anyio.sleep(interval_s)


def toy_rules(**options: Any) -> SequencedInvariants[Effects]:
    return SequencedInvariants(TOY, check_step=check_chain, **options)


def final_value(sim: Simulation, **options: Any) -> Effects:
    """Return the value that a new process reads after all faults have ended."""

    async def reader(process: SimProcess) -> Effects:
        return (await toy_store(process, **options).read_latest()).value

    sim.heal()
    process = sim.start(reader, "final")
    sim.run(hours=1, until=lambda: process.has_ended)
    assert process.error is None, process.error
    assert isinstance(process.result, Effects), "the last read did not end"
    return process.result
