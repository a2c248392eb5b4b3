"""A writer that records its writes, and the compactor and collector that run beside it."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import anyio

import shale
from shale.errors import CorruptionError, ShaleError
from shale.merge_operators import concatenate
from shale.sst.options import SstOptions
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import Transforms
from tests.simulation.compactor import lsm
from tests.simulation.gc.harness import collector
from tests.simulation.reader.reader_processes import EAGER

KEYS = 150
MERGES = Transforms(operator=concatenate, operator_name="concatenate")
COMPACTION = replace(
    lsm.OPTIONS,
    coordinator=replace(lsm.OPTIONS.coordinator, poll_interval_s=2.0, checkpoint_lifetime_s=20.0),
    worker=replace(lsm.OPTIONS.worker, compactions_poll_interval_s=1.0),
    executor=ExecutorOptions(sst=SstOptions(block_size_bytes=512), max_sst_size_bytes=4000, max_subcompactions=1),
)


@dataclass
class ExpectedState:
    """Every write in order: ``(seq, key, value, is_operand)``; ``None`` deletes."""

    writes: list[tuple[int, bytes, bytes | None, bool]] = field(default_factory=list)
    scans: int = 0
    lookups: int = 0

    def state_at(self, seq: int) -> dict[bytes, bytes]:
        state: dict[bytes, bytes] = {}
        for written, key, value, is_operand in self.writes:
            if written > seq:
                break
            if value is None:
                state.pop(key, None)
            else:
                state[key] = state.get(key, b"") + value if is_operand else value
        return state

    def values_between(self, key: bytes, first_seq: int, last_seq: int) -> list[bytes | None]:
        """Return the values that a lookup may return that ran between two sequence numbers."""
        seqs = {
            first_seq,
            *(seq for seq, written, _, _ in self.writes if written == key and first_seq < seq <= last_seq),
        }
        return [self.state_at(seq).get(key) for seq in sorted(seqs)]


async def writing(process: SimProcess, db: shale.Db, expected_state: ExpectedState, *, rounds: int) -> None:
    rng = process.rng
    for number in range(rounds):
        for _ in range(rng.randrange(1, 25)):
            key, value = b"key-%03d" % rng.randrange(KEYS), b"%d/" % number + bytes(rng.randrange(60))
            draw = rng.random()
            if draw < 0.1:
                handle = await db.delete(key)
                expected_state.writes.append((handle.seq, key, None, False))
            elif draw < 0.3:
                handle = await db.merge(key, value[:3])
                expected_state.writes.append((handle.seq, key, value[:3], True))
            else:
                handle = await db.put(key, value)
                expected_state.writes.append((handle.seq, key, value, False))
        if rng.random() < 0.6:
            await db.flush("memtable" if rng.random() < 0.8 else "wal")
        await anyio.sleep(rng.uniform(0, 4))


def start_background_actors(sim: Simulation) -> None:
    sim.start(lsm.compactor, options=COMPACTION, transforms=sim.rng.choice((MERGES, lsm.NO_TRANSFORMS)))
    sim.start(collector, role="gc", options=EAGER)


def run_without_faults(seed: int, writer: Callable[..., Awaitable[None]]) -> ExpectedState:
    """Run a writer beside the background actors, under the rules of a database; it must end without an error."""
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        process = sim.start(writer, "writer", role="writer", expected_state=expected_state)
        _run_with_background_actors(sim, process, hours=1)
        assert process.error is None, process.error
    return expected_state


def run_in_a_swarm_of_faults(seed: int, writer: Callable[..., Awaitable[None]]) -> None:
    """Run a writer beside the background actors; it may end with an error that a failing store causes."""
    faults = replace(SimOptions.swarm(random.Random(seed)), skew_ms=0)  # without skew min_age may be 0
    with Simulation(seed, options=faults) as sim:
        process = sim.start(writer, "writer", role="writer", expected_state=ExpectedState())
        _run_with_background_actors(sim, process, hours=4)
        if process.error is not None:
            error = process.error.exceptions[0] if isinstance(process.error, ExceptionGroup) else process.error
            assert isinstance(error, ShaleError), error
            assert not isinstance(error, CorruptionError), error


def _run_with_background_actors(sim: Simulation, process: SimProcess, *, hours: float) -> None:
    sim.run(seconds=5)
    start_background_actors(sim)
    sim.run(hours=hours, until=lambda: not process.is_running)
