"""Destroying databases under faults.

Source: docs/reference/protocol.md 8.8, 16.5.
"""

import random
from dataclasses import replace
from typing import Any

import anyio
import pytest

import shale
from shale.errors import (
    CheckpointMissing,
    FencedError,
    InvalidDbState,
    InvalidDeletion,
    InvalidObjectState,
    LatestRecordMissing,
    NotFoundError,
)
from shale.protocol.checkpoints import release_checkpoints
from shale.testing.sim_objects import SimSnapshot
from shale.testing.simulation import SimProcess, Simulation, SimulationError
from shale.testing.swarm import SimOptions
from tests.simulation.clones.harness import (
    ClonePins,
    Rows,
    cloner,
    collecting,
    compacting,
    done,
    fill,
    manifests_of,
    opened,
    read_rows,
    request,
    rows_of,
    start,
)
from tests.simulation.conftest import simulated
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.gc.destroy_harness import (
    DESTROYER,
    GRACE_S,
    DestroyRules,
    checkpointer,
    deleting_collector,
    destroyer,
    is_sealed,
    latest_manifest,
    moments,
    objects_below,
    soft_destroyer,
    soon,
    stubborn_destroyer,
)
from tests.simulation.request_counts import at_most

ROWS: Rows = {b"%03d" % number: b"v" * 40 for number in range(40)}


def family(sim: Simulation) -> None:
    """Create a parent, a clone of it, and a sibling whose name has the clone's name as a prefix."""
    done(sim, fill, "p", ROWS, role="writer")
    done(sim, cloner, request("db", "p"))
    done(sim, fill, "db", {b"new": b"row"}, role="writer")
    done(sim, fill, "db2", ROWS, role="writer")
    sim.run(minutes=10)  # the short-lived checkpoint of the clone expires


def stored(seed: int, root: str) -> SimSnapshot:
    """Return a database that was written without faults."""
    with Simulation(seed) as sim:
        done(sim, fill, root, ROWS, role="writer")
        return sim.stored.snapshot()


def pins_in(sim: Simulation, root: str) -> list[object]:
    manifest = latest_manifest(sim, root)
    return [] if manifest is None else [entry for entry in manifest.checkpoints if not entry.expire_s]


@pytest.mark.fault("F5.11")
@row("before the seal", "between seal and marker", "while deleting", "not at all")
def test_a_destroy_killed_at_every_request_completes_at_the_third_run(seed: int, reached: CoverageMarks) -> None:
    """The first two runs are killed; the third completes, and the parent is released."""
    chance = random.Random(f"{seed}/test")
    with Simulation(seed) as sim:
        family(sim)
        sim.watch(ClonePins("p", "db2"), rules := DestroyRules("db", siblings=("db2",)))
        before = objects_below(sim, "p"), objects_below(sim, "db2")
        requests = at_most(sim, 45, two_phase=60)
        for skip in (seed * 7 % requests, chance.randrange(requests)):
            process = start(sim, destroyer, "db", role=DESTROYER)
            (process.kill_before if chance.random() < 0.5 else process.kill_after)("*", "", skip=skip)
            sim.run(minutes=1)
            latest, marked = latest_manifest(sim, "db"), "db/.deleting" in sim.stored
            reached("before the seal", when=latest is not None and latest.initialized)
            reached("between seal and marker", when=latest is not None and is_sealed(latest) and not marked)
            reached("while deleting", when=marked)
            reached("not at all", when=not process.is_killed)
        done(sim, destroyer, "db", role=DESTROYER)
        assert objects_below(sim, "db") == []
        assert pins_in(sim, "p") == []
        assert before[1] == objects_below(sim, "db2")
        rules.siblings = ()
        assert done(sim, rows_of, "p", role="writer") == ROWS
        assert done(sim, destroyer, "db", role=DESTROYER).objects == ()


@pytest.mark.fault("F5.11")
@simulated
def test_concurrent_destroys_complete_under_all_faults(seed: int) -> None:
    """Two processes call again until they succeed, with lost responses, late effects, freezes and kills."""
    with Simulation(seed) as calm:
        family(calm)
        objects = calm.stored.snapshot()
    options = SimOptions.swarm(random.Random(f"{seed}/swarm"))
    with Simulation(seed, options=options) as sim:
        sim.stored.restore(objects)
        sim.restart_killed(30)
        for name in ("a", "b"):
            start(sim, stubborn_destroyer, "db", role=DESTROYER, name=name)
        sim.run(hours=3)
        sim.heal()
        sim.run(hours=3)
        sim.kill_all()
        done(sim, destroyer, "db", role=DESTROYER)
        assert objects_below(sim, "db") == []
        assert {key for key in objects.objects if key.startswith("db2/")} == set(objects_below(sim, "db2"))
        assert done(sim, rows_of, "p", role="writer") == ROWS


@pytest.mark.fault("F5.12")
@simulated
def test_live_checkpoints_prevent_a_destroy(seed: int) -> None:
    chance = random.Random(f"{seed}/test")
    with Simulation(seed) as sim:
        family(sim)
        lifetime_ms = chance.choice((None, 30_000, 300_000))
        sim.watch(ClonePins("p", "db"), DestroyRules("db"))
        done(sim, checkpointer, "db", lifetime_ms=lifetime_ms)
        before = objects_below(sim, "db"), objects_below(sim, "p")
        for root in ("db", "p"):
            process = start(sim, destroyer, root, role=f"of {root}")
            sim.run(seconds=20)
            assert isinstance(process.error, InvalidDeletion)
        assert before == (objects_below(sim, "db"), objects_below(sim, "p"))
        assert done(sim, read_rows, "db", role="reader") == ROWS | {b"new": b"row"}


async def leased_reader(process: SimProcess, root: str) -> list[float]:
    """Read until reads are refused; return the times of all successful reads."""
    times: list[float] = []
    reader = await shale.DbReader.open(
        root,
        store=process.connection,
        env=process.env,
        metrics=process.metrics,
        open_timeout=None,
        checkpoint_lifetime=60.0,
    )
    try:
        while True:
            rows = {row.key: row.value async for row in reader.scan()}
            assert rows.items() >= ROWS.items()
            times.append(process.sim.loop.time())
            await anyio.sleep(1)
    finally:
        process.result = times
        with anyio.CancelScope(shield=True):
            await reader.close()


async def busy_writer(process: SimProcess, root: str) -> None:
    """Write until writes are refused."""
    db = await opened(process, root)
    number = 0
    while True:
        number += 1
        await db.put(b"w%05d" % number, b"x" * 100)
        await anyio.sleep(0.5)


@pytest.mark.fault("F5.13")
@row("the reader was served after the marker", "the writer was fenced")
def test_a_soft_destroy_fences_the_writer_and_waits_for_readers(seed: int, reached: CoverageMarks) -> None:
    """The writer is fenced, the reader continues until its lease ends, and then a collector deletes the database."""
    chance = random.Random(f"{seed}/test")
    with Simulation(seed) as sim:
        done(sim, fill, "db", ROWS, role="writer")
        sim.watch(DestroyRules("db"))
        writer = start(sim, busy_writer, "db", role="writer")
        reader = start(sim, leased_reader, "db", role="reader")
        compactor = start(sim, compacting, "db", role="compactor")
        collectors = [start(sim, deleting_collector, "db", role="gc", name=name) for name in ("gc-a", "gc-b")]
        sim.run(seconds=chance.uniform(3, 15))
        marking = start(sim, soft_destroyer, "db", role="admin")
        sim.run(seconds=30)
        assert marking.error is None
        marked_s = marking.result.destroyed_at_s - 1_700_000_000
        assert isinstance(writer.error, FencedError | InvalidDbState), writer.error
        reached("the writer was fenced", when=isinstance(writer.error, FencedError))
        assert isinstance(compactor.error, FencedError | InvalidDbState), compactor.error
        sim.run(minutes=3)
        assert isinstance(reader.error, InvalidDbState)
        reached("the reader was served after the marker", when=any(time_s > marked_s + 1 for time_s in reader.result))
        assert objects_below(sim, "db"), "the grace is not over"
        sim.run(minutes=25)  # the inputs of a compaction are kept for a quarter of an hour
        assert objects_below(sim, "db") == []
        first_s = next(each.time_s for each in sim.history.mutations if each.key == "db/.deleting")
        assert first_s > marked_s + GRACE_S
        assert [process.error for process in collectors] == [None, None]
        assert all(process.has_ended for process in collectors)


@pytest.mark.fault("F5.18")
@row("the checkpoint won", "the destroy won", "both came at once")
def test_a_checkpoint_that_races_with_a_destroy_is_kept_or_refused(seed: int, reached: CoverageMarks) -> None:
    """T8.i: the checkpoint exists and nothing is deleted, or the checkpoint is refused."""
    first_s, second_s = moments(seed, 2, 0.6)
    objects = stored(seed, "db")
    with Simulation(seed, options=SimOptions(latency_s=0.1)) as sim:
        sim.stored.restore(objects)
        sim.watch(DestroyRules("db"))
        creator = start(sim, checkpointer, "db", role="admin", after_s=first_s)
        killer = start(sim, destroyer, "db", role=DESTROYER, after_s=second_s)
        sim.run(minutes=10)
        if isinstance(killer.error, InvalidDeletion):
            assert creator.error is None
            manifest = latest_manifest(sim, "db")
            assert manifest is not None
            assert manifest.checkpoint(creator.result.id) is not None
            assert done(sim, read_rows, "db", role="reader") == ROWS
            reached("the checkpoint won")
        else:
            assert killer.error is None
            assert isinstance(creator.error, InvalidDbState | LatestRecordMissing | InvalidObjectState)
            assert objects_below(sim, "db") == []
            reached("the destroy won")
        reached("both came at once", when=bool(sim.history.refusals))


@pytest.mark.fault("F5.18")
@row("the clone won", "the destroy won", "a clone was half built")
def test_a_clone_that_races_with_a_destroy_is_whole_or_refused(seed: int, reached: CoverageMarks) -> None:
    chance = random.Random(f"{seed}/test")
    soft = chance.random() < 0.5
    first_s, second_s = moments(seed, 2, 3.0)
    objects = stored(seed, "p")
    with Simulation(seed, options=SimOptions(latency_s=0.1)) as sim:
        sim.stored.restore(objects)
        sim.watch(ClonePins("p", "c"), DestroyRules("p"))

        async def late_cloner(process: SimProcess) -> None:
            await anyio.sleep(first_s)
            await cloner(process, request("c", "p"))

        creator = start(sim, late_cloner, role="admin")
        if soft:
            killer = start(sim, soft_destroyer, "p", role="admin", after_s=second_s)
            start(sim, deleting_collector, "p", role="gc")
        else:
            killer = start(sim, destroyer, "p", role=DESTROYER, after_s=second_s)
        sim.run(hours=2)
        clone = latest_manifest(sim, "c")
        if clone is not None and clone.initialized:
            assert isinstance(killer.error, InvalidDeletion) or soft
            assert done(sim, rows_of, "c", role="writer") == ROWS
            reached("the clone won")
            return
        assert creator.error is not None
        reached("a clone was half built", when=clone is not None)
        if killer.error is None:
            reached("the destroy won")
            # A checkpoint that comes when all is over leaves its manifest.
            assert soft or all("/manifest/" in key for key in objects_below(sim, "p"))
            done(sim, destroyer, "p", role=DESTROYER)
            assert objects_below(sim, "p") == []
        done(sim, destroyer, "c", role="of c")
        assert objects_below(sim, "c") == []
        sim.run(hours=1)
        if soft:
            assert objects_below(sim, "p") == [], "it is no longer needed"


@pytest.mark.fault("F5.19")
@row("it detached", "it was destroyed", "it keeps running")
def test_a_clone_detaches_from_a_softly_destroyed_parent(seed: int, reached: CoverageMarks) -> None:
    """T8.j: the clone detaches in spite of the marker, early, late or never."""
    chance = random.Random(f"{seed}/test")
    case = chance.choice(("it detached", "it was destroyed", "it keeps running"))
    with Simulation(seed) as sim:
        soon(sim, fill, "p", ROWS, role="writer")
        soon(sim, cloner, request("c", "p"))
        sim.watch(ClonePins("p", "c"), DestroyRules("p"))
        gc = start(sim, deleting_collector, "p", role="gc")
        soon(sim, soft_destroyer, "p", role="admin")
        sim.run(minutes=20)
        assert objects_below(sim, "p"), "the clone needs it"
        reached(case)
        if case == "it detached":
            soon(sim, compacting, "c", role="compactor", full=True)
            sim.run(minutes=16)  # the inputs are kept for a quarter of an hour
            soon(sim, collecting, "c", role="gc", rounds=3)
        elif case == "it was destroyed":
            sim.run(hours=chance.uniform(0, 1))
            soon(sim, destroyer, "c", role="of c")
        else:
            sim.run(hours=1)
            assert objects_below(sim, "p")
            assert soon(sim, rows_of, "c", role="writer") == ROWS
            return
        sim.run(minutes=30)
        assert objects_below(sim, "p") == []
        assert gc.has_ended
        assert gc.error is None
        if case == "it detached":
            assert soon(sim, rows_of, "c", role="writer") == ROWS


@pytest.mark.fault("F5.20")
@simulated
def test_a_destroy_stopped_between_seal_and_marker_completes_when_rerun(seed: int) -> None:
    chance = random.Random(f"{seed}/test")
    with Simulation(seed) as sim:
        family(sim)
        sim.watch(DestroyRules("db"))
        process = start(sim, destroyer, "db", role=DESTROYER)
        if chance.random() < 0.5:
            process.kill_after("put", "db/manifest/")
        else:
            process.kill_before("put", ".deleting")
        sim.run(minutes=1)
        assert process.is_killed
        assert "db/.deleting" not in sim.stored
        for main, arguments in (
            (fill, ("db", ROWS)),
            (cloner, (request("elsewhere", "db"),)),
            (cloner, (request("db", "p"),)),
            (checkpointer, ("db",)),
            (soft_destroyer, ("db",)),
        ):
            other = start(sim, main, *arguments, role="admin")
            sim.run(minutes=10)
            assert other.error is not None, main
            assert not isinstance(other.error, NotFoundError | CheckpointMissing), other.error
        done(sim, destroyer, "db", role=DESTROYER)
        assert objects_below(sim, "db") == []


@pytest.mark.fault("F5.21")
@simulated
def test_a_destroy_keeps_a_database_below_its_path(seed: int) -> None:
    chance = random.Random(f"{seed}/test")
    inner = chance.choice(("db/inner", "db/wal/inner", "db/manifest", "db/wal/deeper/down"))
    with Simulation(seed) as sim:
        done(sim, fill, "db", ROWS, role="writer")
        done(sim, fill, inner, ROWS, role="writer")
        sim.watch(rules := DestroyRules("db"))
        before = objects_below(sim, "db")
        process = start(sim, destroyer, "db", role=DESTROYER)
        sim.run(minutes=1)
        assert isinstance(process.error, InvalidDeletion)
        assert f"{inner}/manifest/" in str(process.error) or f"{inner}/compacted/" in str(process.error)
        assert objects_below(sim, "db") == before
        assert done(sim, read_rows, inner, role="reader") == ROWS
        if inner != "db/manifest" and chance.random() < 0.5:
            sim.run(minutes=20)  # the reader's lease ends
            done(sim, destroyer, inner, role="of the inner one")
            assert objects_below(sim, inner) == []
            done(sim, destroyer, "db", role=DESTROYER)
        else:
            rules.forced = True
            done(sim, destroyer, "db", role=DESTROYER, force=True)
        assert objects_below(sim, "db") == []


@row("killed while it deleted")
def test_a_collector_that_dies_is_followed_by_one_that_finishes(seed: int, reached: CoverageMarks) -> None:
    chance = random.Random(f"{seed}/test")
    with Simulation(seed) as sim:
        family(sim)
        sim.watch(ClonePins("p"), DestroyRules("db", siblings=("db2",)))
        done(sim, soft_destroyer, "db", role="admin")
        gc = start(sim, deleting_collector, "db", role="gc")
        sim.at(GRACE_S - 1, lambda: gc.kill_before("*", "", skip=chance.randrange(at_most(sim, 60, two_phase=100))))
        sim.run(minutes=20)
        reached("killed while it deleted", when=gc.is_killed and "db/.deleting" in sim.stored)
        last = start(sim, deleting_collector, "db", role="gc")
        sim.run(minutes=20)
        assert last.error is None
        assert last.has_ended
        assert objects_below(sim, "db") == []
        assert pins_in(sim, "p") == []


async def releasing(process: SimProcess, root: str) -> None:
    """Delete every checkpoint, marked or not."""
    stored = await manifests_of(process, root).load()
    await release_checkpoints(stored, [entry.id for entry in stored.value.checkpoints])


@simulated
def test_a_forgotten_checkpoint_keeps_a_marked_database_until_it_is_deleted(seed: int) -> None:
    with Simulation(seed) as sim:
        done(sim, fill, "db", ROWS, role="writer")
        sim.watch(DestroyRules("db"))
        done(sim, checkpointer, "db")
        done(sim, soft_destroyer, "db", role="admin")
        gc = start(sim, deleting_collector, "db", role="gc")
        sim.run(hours=1)
        assert objects_below(sim, "db")
        assert gc.is_running
        soon(sim, releasing, "db")
        sim.run(minutes=5)
        assert objects_below(sim, "db") == []
        assert gc.has_ended


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        pytest.param("require_no_checkpoints", lambda *_: None, id="sealing whatever is alive"),
        pytest.param("sealed", lambda manifest: replace(manifest, checkpoints=()), id="a seal that seals nothing"),
        pytest.param("deleting_key", lambda root: f"{root}/wal/.deleting", id="deleting without the marker"),
        pytest.param("below", lambda root, name: f"{root}{name}", id="listing what begins alike"),
    ],
)
def test_a_broken_destroy_is_found(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of ``DestroyRules`` find each of these defects."""
    with Simulation(1) as sim:
        done(sim, fill, "db", ROWS, role="writer")
        done(sim, fill, "db2", ROWS, role="writer")
        if name == "require_no_checkpoints":
            done(sim, checkpointer, "db")
        before = objects_below(sim, "db2")
        sim.watch(DestroyRules("db", siblings=("db2",)))
        monkeypatch.setattr(f"shale.gc.hard_destroy.{name}", broken)
        if name == "below":
            # What listings show beyond the root is not the plan's either: the second line holds alone.
            done(sim, destroyer, "db", role=DESTROYER)
            assert objects_below(sim, "db2") == before
            return
        with pytest.raises(SimulationError):
            done(sim, destroyer, "db", role=DESTROYER)
