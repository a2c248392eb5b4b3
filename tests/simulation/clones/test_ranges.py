"""Processes that clone to one path with different ranges, under faults (docs/reference/protocol.md 11)."""

from shale.errors import CheckpointMissing, InvalidDbState, ObjectVersionExists
from shale.format.names import visible_range_key
from shale.protocol.visible_range import decode_visible_range
from shale.testing.mutation_log import Mutation
from shale.testing.simulation import Simulation
from shale.types import KeyRange
from tests.simulation.clones.harness import (
    ClonePins,
    Rows,
    cloner,
    done,
    fill,
    half,
    patient_cloner,
    request,
    rows_of,
    start,
)
from tests.simulation.coverage_marks import CoverageMarks, row

ROWS: Rows = {b"key-%02d" % number: b"value %d" % number for number in range(24)}
MIDDLE = b"key-12"
HALVES = {"left": (None, MIDDLE), "right": (MIDDLE, None)}


class RangeOfTheClone:
    """A clone that is initialized shows the keys that its SSTs have."""

    def __init__(self, path: str, pins: ClonePins) -> None:
        self.path = path
        self._pins = pins

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        latest = self._pins.latest(sim, self.path)
        if latest is None or not latest.initialized:
            return
        shown = shown_range(sim, self.path)
        for view in latest.views():
            keys = view.effective_range
            assert keys.intersect(shown) == keys, f"{mutation}: the clone has {keys} and shows {shown}"


def shown_range(sim: Simulation, path: str) -> KeyRange:
    key = visible_range_key(path)
    return decode_visible_range(sim.stored[key], path=key)


def rows_in(keys: KeyRange) -> Rows:
    return {key: value for key, value in ROWS.items() if keys.contains(key)}


@row("the left one", "the right one", "of two equal ones")
def test_one_of_several_ranges_wins(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed, swarm=True) as sim:
        pins = ClonePins("p", "c")
        faults = sim.options
        sim.heal()
        done(sim, fill, "p", ROWS, role="writer")
        sim.options = faults
        sim.watch(pins, RangeOfTheClone("c", pins))
        sim.restart_killed(20.0)
        names = sim.rng.choice((("left", "right"), ("right", "left"), ("left", "right", "left")))
        tries = [start(sim, patient_cloner, request("c", half("p", *HALVES[name])), [30.0] * 4) for name in names]
        sim.run(hours=2, until=lambda: not any(process.is_running for process in tries))
        sim.heal()
        sim.run(minutes=30)
        sim.kill_all()
        expected = CheckpointMissing | InvalidDbState | ObjectVersionExists | None
        for process in tries:
            assert isinstance(process.error, expected), process.error
        latest = pins.latest(sim, "c")
        if latest is None or not latest.initialized:
            return
        shown = shown_range(sim, "c")
        winner = next(name for name, keys in HALVES.items() if KeyRange.half_open(*keys) == shown)
        reached(f"the {winner} one")
        reached("of two equal ones", when=names.count(winner) == 2)
        done(sim, cloner, request("c", half("p", *HALVES[winner])))
        assert done(sim, rows_of, "c", role="writer") == rows_in(shown)
        for name, process in zip(names, tries, strict=True):
            assert process.error is not None or process.is_killed or name == winner
