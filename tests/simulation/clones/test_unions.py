"""Projections and unions under faults.

Source: docs/reference/protocol.md 16.6.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shale.clones.promote_l0 import duplicated
from shale.clones.request import CloneSource
from shale.errors import InvalidUnion
from shale.protocol.versioned import Versioned
from shale.testing.simulation import SimProcess, Simulation
from shale.types import KeyRange, Manifest, RunId, SortedRun, Tree
from tests.simulation.clones.harness import (
    ClonePins,
    Rows,
    cloner,
    collecting,
    compacting,
    done,
    fill,
    half,
    manifests_of,
    opened,
    read_rows,
    request,
    rows_of,
    start,
)
from tests.simulation.coverage_marks import CoverageMarks, row

KEYS = [b"%c" % letter for letter in b"abcdefghijklmnopqrstuvwx"]


def rows_for(number: int) -> Rows:
    return {key: b"%s of %d" % (key, number) for key in KEYS}


def newest(pins: ClonePins, sim: Simulation, path: str) -> Manifest:
    manifest = pins.latest(sim, path)
    assert manifest is not None
    return manifest


async def layered(process: SimProcess, path: str, tables: int, *, first: int = 0) -> Rows:
    """Create L0s that hold every key, so each of them spans every cut."""
    async with opened(process, path) as db:
        for number in range(first, first + tables):
            for key, value in rows_for(number).items():
                await db.put(key, value)
            await db.flush("wal")
            await db.flush("memtable")
    return rows_for(first + tables - 1)


@pytest.mark.fault("F6.7")
@row("split within L0", "split within a run")
def test_ten_rounds_of_split_and_union_keep_every_row(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        wanted = done(sim, layered, "u0", sim.rng.randint(1, 4), role="writer")
        pins = ClonePins(*(f"{name}{number}" for name in "ulr" for number in range(11)))
        sim.watch(pins)
        if sim.rng.random() < 0.5:
            done(sim, compacting, "u0", full=True, role="compactor")
            if sim.rng.random() < 0.5:
                wanted = done(sim, layered, "u0", sim.rng.randint(1, 3), first=10, role="writer")
        for number in range(1, 11):
            cut, before = sim.rng.choice(KEYS[1:]), f"u{number - 1}"
            tree = newest(pins, sim, before).tree
            reached("split within L0", when=bool(tree.l0))
            reached("split within a run", when=bool(tree.compacted))
            left, right = f"l{number}", f"r{number}"
            done(sim, cloner, request(left, half(before, None, cut)))
            done(sim, cloner, request(right, half(before, cut, None)))
            done(sim, cloner, request(f"u{number}", right, left, compact_union=sim.rng.random() < 0.5))
            united = newest(pins, sim, f"u{number}")
            assert not duplicated(united.tree)
            assert len(united.external_dbs) <= len(newest(pins, sim, "u0").ssts())
        assert done(sim, read_rows, "u10", role="reader") == wanted


@pytest.mark.fault("F6.8")
@row("between two SSTs")
def test_a_projection_into_a_gap_is_empty(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        low, high = KEYS[: sim.rng.randint(2, 6)], KEYS[-sim.rng.randint(2, 6) :]
        done(sim, fill, "p", {key: key for key in (*low, *high)}, tables=1, role="writer")
        done(sim, compacting, "p", full=True, role="compactor")
        reached("between two SSTs")
        done(sim, cloner, request("c", half("p", low[-1] + b"\0", high[0])))
        assert done(sim, rows_of, "c", role="writer") == {}
        done(sim, cloner, request("d", half("p", low[-1], high[0] + b"\0")))
        assert done(sim, rows_of, "d", role="writer") == {low[-1]: low[-1], high[0]: high[0]}


@pytest.mark.fault("F6.9")
def test_invalid_unions_are_refused() -> None:
    with Simulation(0) as sim:
        done(sim, fill, "a", {b"a": b"1", b"m": b"1"}, role="writer")
        done(sim, fill, "b", {b"m": b"2", b"z": b"2"}, role="writer")
        done(sim, fill, "logged", {b"p": b"2", b"z": b"2"}, leave="wal", role="writer")
        for sources, error in (
            (("a", "b"), InvalidUnion),
            ((half("a", b"a", b"c"), half("b", b"m", None)), InvalidUnion),
        ):
            failed = start(sim, cloner, request("u", *sources))
            sim.run(hours=1)
            assert isinstance(failed.error, error), failed.error
            assert not sim.objects("u/")
        # T11.d: a log of fences is no obstacle, and gaps may be wanted.
        done(sim, rows_of, "a", role="writer")
        done(sim, cloner, request("u", half("a", b"a", b"c"), half("b", b"m", None), allow_gaps=True))
        assert done(sim, rows_of, "u", role="writer") == {b"a": b"1", b"m": b"2", b"z": b"2"}
        # The rows of a log are L0s of a union and of a projection, which shows only its range.
        done(sim, cloner, request("v", "a", half("logged", b"q", None)))
        assert done(sim, rows_of, "v", role="writer") == {b"a": b"1", b"m": b"1", b"z": b"2"}
        done(sim, cloner, request("w", half("logged", None, b"q")))
        assert done(sim, rows_of, "w", role="writer") == {b"p": b"2"}


@pytest.mark.fault("F6.10")
@row("written after the union")
def test_first_writes_after_a_union_are_the_newest(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("l", "r", "u")
        sim.watch(pins)
        for path, keys in (("l", KEYS[:12]), ("r", KEYS[12:])):
            for _ in range(sim.rng.randint(1, 4)):
                done(sim, fill, path, dict.fromkeys(keys, b"old"), role="writer")
        done(sim, cloner, request("u", "l", "r"))
        highest = max(newest(pins, sim, path).last_l0_seq for path in ("l", "r"))
        assert newest(pins, sim, "u").last_l0_seq == highest
        done(sim, fill, "u", dict.fromkeys(KEYS[10:14], b"new"), role="writer")
        reached("written after the union")
        assert newest(pins, sim, "u").last_l0_seq > highest
        found = done(sim, rows_of, "u", role="writer")
        assert found == {key: b"new" if key in KEYS[10:14] else b"old" for key in KEYS}


@pytest.mark.fault("F6.11")
@pytest.mark.parametrize("tables", range(1, 11))
def test_l0s_that_straddle_a_cut_are_in_both_halves(tables: int) -> None:
    with Simulation(tables) as sim:
        pins = ClonePins("p", "l", "r", "u")
        sim.watch(pins)
        wanted = done(sim, layered, "p", tables, role="writer")
        done(sim, cloner, request("l", half("p", None, b"m")))
        done(sim, cloner, request("r", half("p", b"m", None)))
        done(sim, cloner, request("u", "l", "r"))
        assert not duplicated(newest(pins, sim, "u").tree)
        done(sim, compacting, "u", full=True, role="compactor")
        assert newest(pins, sim, "u").tree.l0 == ()
        assert done(sim, rows_of, "u", role="writer") == wanted


async def unite_as_slatedb(process: SimProcess, path: str, sources: Sequence[str]) -> None:
    """Concatenate the lists of both shards, duplicates and all, as SlateDB 0.17 does."""
    manifests = [(await manifests_of(process, source).read_latest()).value for source in sources]
    stored = await manifests_of(process, path).load()
    runs = [run.ssts for manifest in manifests for run in manifest.tree.compacted]
    tree = Tree(
        l0=tuple(view for manifest in manifests for view in manifest.tree.l0),
        compacted=tuple(SortedRun(id=RunId(len(runs) - 1 - index), ssts=ssts) for index, ssts in enumerate(runs)),
    )
    await stored.update(Versioned(stored.id, replace(stored.value, tree=tree)))


@pytest.mark.fault("F6.12")
@row("a flush during the promotion", "died after the promotion", "nothing in the way")
def test_duplicate_l0s_of_a_slatedb_union_are_repaired(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("p", "l", "r", "u")
        sim.watch(pins)
        wanted = done(sim, layered, "p", sim.rng.randint(1, 6), role="writer")
        done(sim, cloner, request("l", half("p", None, b"m")))
        done(sim, cloner, request("r", half("p", b"m", None)))
        done(sim, cloner, request("u", "l", "r"))
        done(sim, unite_as_slatedb, "u", ["l", "r"])
        assert duplicated(newest(pins, sim, "u").tree)
        case = sim.rng.choice(("a flush during the promotion", "died after the promotion", "nothing in the way"))
        reached(case)
        coordinator = start(sim, compacting, "u", role="compactor")
        if case == "a flush during the promotion":
            coordinator.freeze_before("put", "u/manifest/", 20.0, skip=sim.rng.randrange(1, 4))
            start(sim, fill, "u", {b"b": b"flushed", b"x": b"flushed"}, role="writer")
            wanted = wanted | {b"b": b"flushed", b"x": b"flushed"}
        elif case == "died after the promotion":
            coordinator.kill_after("put", "u/manifest/", skip=2)
        sim.run(minutes=20)
        if case == "died after the promotion":
            assert coordinator.is_killed
            coordinator = start(sim, compacting, "u", role="compactor")
            sim.run(minutes=20)
        assert coordinator.error is None, coordinator.error
        tree = newest(pins, sim, "u").tree
        assert not duplicated(tree)
        sim.kill_all()
        assert done(sim, rows_of, "u", role="writer") == wanted


@pytest.mark.fault("F6.13")
@row("the key on both sides", "equal starts")
def test_a_key_that_spans_two_ssts_keeps_its_versions_in_a_union(seed: int, reached: CoverageMarks) -> None:
    """The versions of ``k`` are in two SSTs of the run: the newest in the first one."""
    with Simulation(seed) as sim:
        pins = ClonePins("p", "c", "d")
        starts_equal = sim.rng.random() < 0.5
        reached("equal starts", when=starts_equal)
        first: Rows = {b"k": b"newest"} if starts_equal else {b"a": b"a", b"k": b"newest"}
        # In time the older part is written first; the run begins with the newer one.
        done(sim, fill, "p", {b"k": b"older", b"x": b"x"}, tables=1, role="writer")
        done(sim, fill, "p", first, tables=1, role="writer")
        manifest = newest(pins, sim, "p")
        assert len(manifest.tree.l0) == 2
        done(sim, reversed_run, "p")
        wanted = {b"k": b"newest", b"x": b"x"} | first
        assert done(sim, read_rows, "p", role="reader") == wanted
        for number, (low, high) in enumerate(
            [(b"a", b"z"), (b"a", b"k"), (b"k", b"z"), (b"a", b"k\0"), (b"k\0", b"z")]
        ):
            reached("the key on both sides", when=low <= b"k" < high)
            keys = KeyRange.half_open(low, high)
            shown = {key: value for key, value in wanted.items() if keys.contains(key)}
            done(sim, cloner, request(f"c{number}", CloneSource(path="p", keys=keys)))
            assert done(sim, read_rows, f"c{number}", role="reader") == shown
            done(sim, cloner, request(f"d{number}", half(f"c{number}", b"b", b"y")))
            inner = {key: value for key, value in shown.items() if b"b" <= key < b"y"}
            assert done(sim, read_rows, f"d{number}", role="reader") == inner


async def reversed_run(process: SimProcess, path: str) -> None:
    """Return one run of all L0s, newest first."""
    stored = await manifests_of(process, path).load()
    tree = Tree(compacted=(SortedRun(id=RunId(0), ssts=stored.value.tree.l0),))
    await stored.update(Versioned(stored.id, replace(stored.value, tree=tree)))


@pytest.mark.fault("F6.17")
@row("nothing in common")
def test_a_projection_outside_the_ranges_of_its_sources_is_empty(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        done(sim, fill, "p", rows_for(1), role="writer")
        wanted = request("c", half("p", b"a", b"f"), keys=KeyRange.half_open(b"m", None))
        done(sim, cloner, wanted)
        reached("nothing in common")
        assert done(sim, rows_of, "c", role="writer") == {}
        done(sim, collecting, "c", rounds=1, role="gc")
