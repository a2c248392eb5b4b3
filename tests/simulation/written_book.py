"""A writer whose book tells what it has written, and the neighbours that compact and collect behind its back."""

from dataclasses import dataclass, field, replace

import anyio

import shale
from shale.merge_operators import concatenate
from shale.sst.options import SstOptions
from shale.testing.simulation import SimProcess, Simulation
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import Transforms
from tests.simulation import lsm
from tests.simulation.gc_house import collector
from tests.simulation.test_f3_reader import EAGER

KEYS = 150
MERGES = Transforms(operator=concatenate, operator_name="concatenate")
COMPACTION = replace(
    lsm.OPTIONS,
    coordinator=replace(lsm.OPTIONS.coordinator, poll_interval_s=2.0, checkpoint_lifetime_s=20.0),
    worker=replace(lsm.OPTIONS.worker, compactions_poll_interval_s=1.0),
    executor=ExecutorOptions(sst=SstOptions(block_size_bytes=512), max_sst_size_bytes=4000, max_subcompactions=1),
)


@dataclass
class Book:
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
        """What a lookup may give that was under way from one sequence number to the other."""
        seqs = {
            first_seq,
            *(seq for seq, written, _, _ in self.writes if written == key and first_seq < seq <= last_seq),
        }
        return [self.state_at(seq).get(key) for seq in sorted(seqs)]


async def writing(process: SimProcess, db: shale.Db, book: Book, *, rounds: int) -> None:
    rng = process.rng
    for number in range(rounds):
        for _ in range(rng.randrange(1, 25)):
            key, value = b"key-%03d" % rng.randrange(KEYS), b"%d/" % number + bytes(rng.randrange(60))
            draw = rng.random()
            if draw < 0.1:
                handle = await db.delete(key)
                book.writes.append((handle.seq, key, None, False))
            elif draw < 0.3:
                handle = await db.merge(key, value[:3])
                book.writes.append((handle.seq, key, value[:3], True))
            else:
                handle = await db.put(key, value)
                book.writes.append((handle.seq, key, value, False))
        if rng.random() < 0.6:
            await db.flush("memtable" if rng.random() < 0.8 else "wal")
        await anyio.sleep(rng.uniform(0, 4))


def start_neighbours(sim: Simulation) -> None:
    sim.start(lsm.compactor, options=COMPACTION, transforms=sim.rng.choice((MERGES, lsm.NO_TRANSFORMS)))
    sim.start(collector, role="gc", options=EAGER)
