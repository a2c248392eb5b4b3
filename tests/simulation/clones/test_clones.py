"""Clones under faults.

Source: docs/reference/protocol.md 16.6.
"""

from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.clones.request import CloneRequest, CloneSource
from shale.errors import (
    CheckpointMissing,
    CloneIncorrectExternalDbCheckpoint,
    InvalidDbState,
    InvalidDeletion,
    LatestRecordMissing,
    ObjectVersionExists,
    ShaleError,
)
from shale.gc.hard_destroy import DestroyTarget, destroy
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
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
    patient_cloner,
    read_rows,
    request,
    rows_of,
    start,
)
from tests.simulation.conftest import FEW_SEEDS, simulated_slowly
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.request_counts import at_most

ROWS: Rows = {b"key-%02d" % number: b"value %d" % number for number in range(24)}
MORE: Rows = {b"key-%02d" % number: b"later %d" % number for number in range(0, 24, 2)}


def requests_max(sim: Simulation) -> int:
    """Return more requests than a clone of one source with a WAL takes."""
    return at_most(sim, 45, two_phase=65)


async def checkpointer(process: SimProcess, path: str, lifetime_s: float | None = None) -> UUID:
    stored = await manifests_of(process, path).load()
    lifetime_ms = None if lifetime_s is None else int(lifetime_s * 1000)
    return (await create_checkpoint(stored, process.env, lifetime_ms=lifetime_ms)).id


async def releaser(process: SimProcess, path: str, checkpoint_id: UUID) -> None:
    await release_checkpoints(await manifests_of(process, path).load(), [checkpoint_id])


def is_finished(pins: ClonePins, sim: Simulation, path: str) -> bool:
    manifest = pins.latest(sim, path)
    return manifest is not None and manifest.initialized


@pytest.mark.fault("F6.1")
@row("nothing was there", "half-built", "pinned", "finished", "the ephemeral checkpoint was over", within=64)
def test_a_clone_killed_after_any_request_completes_when_retried(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("p", "c")
        sim.watch(pins)
        done(sim, fill, "p", ROWS, leave="wal", role="writer")
        named = sim.rng.random() < 0.3
        checkpoint = done(sim, checkpointer, "p") if named else None
        wanted = request("c", CloneSource(path="p", checkpoint=checkpoint))
        first = start(sim, cloner, wanted)
        skip = (seed * 7 + sim.rng.randrange(3)) % requests_max(sim)
        first.network.hook(HookPoint.AFTER, "*", "", first.kill, skip=skip)
        sim.run(hours=1)
        begun = pins.latest(sim, "c")
        pinned = begun is not None and all(
            pins.latest(sim, entry.path).checkpoint(entry.final_checkpoint_id)  # type: ignore[arg-type, union-attr]
            for entry in begun.external_dbs
        )
        reached("nothing was there", when=begun is None)
        reached("half-built", when=begun is not None and not begun.initialized)
        reached("pinned", when=begun is not None and pinned and not begun.initialized)
        reached("finished", when=begun is not None and begun.initialized)
        # Checkpoints count whole seconds, and the second attempt takes some.
        wait_s = sim.rng.choice((1.0, 295.0, 301.0))
        again = start(sim, waiting, wait_s, wanted)
        sim.run(hours=1)
        is_lost = wait_s > 300 and not named and begun is not None and not pinned
        reached("the ephemeral checkpoint was over", when=is_lost)
        if is_lost:
            assert isinstance(again.error, CheckpointMissing)
            return
        assert again.error is None, again.error
        parent, clone = pins.latest(sim, "p"), pins.latest(sim, "c")
        assert parent is not None
        assert clone is not None
        kept = {entry.id for entry in parent.checkpoints if not entry.expire_s} - {checkpoint}
        assert kept == {entry.final_checkpoint_id for entry in clone.external_dbs}, "a checkpoint without a reference"
        assert done(sim, rows_of, "c", role="writer") == ROWS
        assert done(sim, read_rows, "p", role="reader") == ROWS


async def waiting(process: SimProcess, wait_s: float, wanted: CloneRequest) -> Any:
    await anyio.sleep(wait_s)
    return await cloner(process, wanted)


@pytest.mark.fault("F6.1")
@row("nothing was there", "half-built", "finished", "the halves own nothing", within=64)
def test_a_union_killed_after_any_request_completes_when_retried(seed: int, reached: CoverageMarks) -> None:
    """Includes sources that only borrow SSTs, so that the union does not reference them."""
    with Simulation(seed) as sim:
        pins = ClonePins("p", "left", "right", "u")
        sim.watch(pins)
        done(sim, fill, "p", ROWS, role="writer")
        for path, keys in (("left", (None, b"key-12")), ("right", (b"key-12", None))):
            done(sim, cloner, request(path, half("p", *keys)))
        wanted = dict(ROWS)
        if sim.rng.random() < 0.5:
            done(sim, fill, "left", {b"key-03": b"of left"}, role="writer")
            wanted[b"key-03"] = b"of left"
        reached("the halves own nothing", when=wanted == ROWS)
        union = request("u", "left", "right")
        first = start(sim, cloner, union)
        skip = (seed * 7 + sim.rng.randrange(3)) % at_most(sim, 60, two_phase=105)
        first.network.hook(HookPoint.AFTER, "*", "", first.kill, skip=skip)
        sim.run(hours=1)
        begun = pins.latest(sim, "u")
        reached("nothing was there", when=begun is None)
        reached("half-built", when=begun is not None and not begun.initialized)
        reached("finished", when=begun is not None and begun.initialized)
        again = start(sim, waiting, sim.rng.choice((1.0, 250.0)), union)
        sim.run(hours=1)
        assert again.error is None, again.error
        united = pins.latest(sim, "u")
        assert united is not None
        for path in ("p", "left", "right"):
            parent = pins.latest(sim, path)
            assert parent is not None
            borrowers = (pins.latest(sim, each) for each in ("left", "right", "u"))
            entries = [entry for each in borrowers if each is not None for entry in each.external_dbs]
            named = {entry.final_checkpoint_id for entry in entries if entry.path == path}
            assert {entry.id for entry in parent.checkpoints if not entry.expire_s} == named
        assert done(sim, rows_of, "u", role="writer") == wanted


@pytest.mark.fault("F6.2")
@row("the other came first", "different parents")
def test_two_clones_at_one_path_have_one_source(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("p", "q", "c")
        sim.watch(pins)
        done(sim, fill, "p", ROWS, leave="wal", role="writer")
        done(sim, fill, "q", MORE, leave="wal", role="writer")
        other = "q" if sim.rng.random() < 0.5 else "p"
        reached("different parents", when=other == "q")
        one = start(sim, cloner, request("c", "p"))
        one.freeze_before("*", "", sim.rng.uniform(0, 5), skip=sim.rng.randrange(requests_max(sim)))
        two = start(sim, cloner, request("c", other))
        two.freeze_before("*", "", sim.rng.uniform(0, 5), skip=sim.rng.randrange(requests_max(sim)))
        sim.run(hours=1)
        ended = [process.error for process in (one, two)]
        assert any(error is None for error in ended), ended
        for error in ended:
            assert error is None or isinstance(error, CloneIncorrectExternalDbCheckpoint | InvalidDbState), error
        assert other == "p" or ended.count(None) == 1, "one database cannot be a clone of both"
        reached("the other came first", when=two.error is None and (one.error is not None or not one.result.is_new))
        owner = "p" if one.error is None and (other == "p" or two.error is not None) else other
        assert done(sim, rows_of, "c", role="writer") == (ROWS if owner == "p" else MORE)


@pytest.mark.fault("F6.3")
@row("compacted before the pin", "the clone reads what the parent has lost")
def test_a_clone_is_whole_though_its_parent_compacts_and_collects(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("db", "c")
        sim.watch(pins, DatabaseInvariants("db", pins=False))
        done(sim, fill, "db", ROWS, tables=6, leave="wal", role="writer")
        start(sim, compacting, "db", role="compactor")
        start(sim, collecting, "db", role="gc")
        sim.run(seconds=sim.rng.uniform(0, 20))
        reached("compacted before the pin", when=bool(pins.latest(sim, "db").tree.compacted))  # type: ignore[union-attr]
        clone = start(sim, cloner, request("c", "db"))
        clone.freeze_before("*", "", sim.rng.uniform(0, 250), skip=sim.rng.randrange(requests_max(sim)))
        sim.run(minutes=30)
        assert clone.error is None, clone.error
        parent, child = pins.latest(sim, "db"), pins.latest(sim, "c")
        assert parent is not None
        assert child is not None
        reached("the clone reads what the parent has lost", when=not child.ssts().keys() <= parent.ssts().keys())
        sim.kill_all()
        assert done(sim, rows_of, "c", role="writer") == ROWS
        assert done(sim, rows_of, "db", role="writer") == ROWS


@pytest.mark.fault("F6.4")
@row("pinned in time", "too late")
def test_a_clone_is_whole_or_refused_when_the_parent_wal_is_collected(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        sim.watch(ClonePins("p", "c"))
        done(sim, fill, "p", ROWS, leave="wal", role="writer")
        clone = start(sim, cloner, request("c", "p"))
        in_step = sim.rng.choice(("c/wal/", "c/manifest/"))
        clone.freeze_before("put", in_step, 1000.0)
        sim.run(seconds=5)
        writing = start(sim, fill, "p", MORE, role="writer")
        start(sim, collecting, "p", role="gc")
        sim.run(minutes=40)
        assert writing.error is None
        sim.kill_all()
        reached("pinned in time", when=clone.error is None)
        reached("too late", when=clone.error is not None)
        if clone.error is not None:
            assert isinstance(clone.error, CheckpointMissing)
            assert in_step == "c/manifest/"
        else:
            assert done(sim, rows_of, "c", role="writer") == ROWS


@pytest.mark.slow
@pytest.mark.fault("F6.5")
@row(
    *("detached", "died after the parent's write", "died after its own write"),
    "an old version still reads the parent",
    default=FEW_SEEDS,
)
def test_a_clone_detaches_when_it_needs_nothing_of_its_parent(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("p", "c")
        sim.watch(pins)
        done(sim, fill, "p", ROWS, tables=4, role="writer")
        done(sim, cloner, request("c", "p"))
        old = done(sim, checkpointer, "c") if sim.rng.random() < 0.5 else None
        done(sim, fill, "c", MORE, role="writer")
        done(sim, compacting, "c", full=True, role="compactor")
        child = pins.latest(sim, "c")
        assert child is not None
        assert not child.external_dbs[0].sst_ids
        final = child.external_dbs[0].final_checkpoint_id
        assert final is not None
        gc = start(sim, collecting, "c", role="gc")
        place = sim.rng.choice(("p/manifest/", "c/manifest/", None))
        if place is not None:
            gc.kill_after("put", place, skip=sim.rng.randrange(2) if place == "c/manifest/" else 0)
        sim.run(hours=1)
        reached("died after the parent's write", when=gc.is_killed and place == "p/manifest/")
        reached("died after its own write", when=gc.is_killed and place == "c/manifest/")
        if old is not None:
            reached("an old version still reads the parent")
            assert pins.latest(sim, "c").external_dbs  # type: ignore[union-attr]
            assert pins.latest(sim, "p").checkpoint(final)  # type: ignore[union-attr]
            done(sim, releaser, "c", old)
        if not gc.is_running:
            gc = start(sim, collecting, "c", role="gc")
        sim.run(hours=1)
        gc.kill()
        reached("detached")
        assert not pins.latest(sim, "c").external_dbs  # type: ignore[union-attr]
        assert not pins.latest(sim, "p").checkpoint(final)  # type: ignore[union-attr]
        assert done(sim, rows_of, "c", role="writer") == ROWS | MORE
        assert done(sim, rows_of, "p", role="writer") == ROWS


@pytest.mark.fault("F6.6")
@row("still needed", "not in use")
def test_a_nested_clone_survives_the_destroy_of_the_middle_one(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("g", "p", "c")
        sim.watch(pins)
        done(sim, fill, "g", ROWS, role="writer")
        # The user's checkpoint goes as soon as the clone is there (T10.c).
        users = done(sim, checkpointer, "g")
        done(sim, cloner, request("p", CloneSource(path="g", checkpoint=users)))
        done(sim, releaser, "g", users)
        is_needed = sim.rng.random() < 0.5
        if is_needed:
            done(sim, fill, "p", MORE, role="writer")
        wanted = done(sim, rows_of, "p", role="writer")
        done(sim, cloner, request("c", "p"))
        refused = start(sim, destroyer, "p")
        sim.run(hours=1)
        assert isinstance(refused.error, InvalidDeletion)
        middle, youngest = pins.latest(sim, "p"), pins.latest(sim, "c")
        assert middle is not None
        assert youngest is not None
        reached("still needed", when=is_needed)
        reached("not in use", when=not is_needed)
        if not is_needed:
            pins.paths = ("g", "c")
            done(sim, collecting, "c", rounds=2, role="gc")
            done(sim, destroyer, "p", after_s=400.0)
            assert not sim.objects("p/")
            grandparent = pins.latest(sim, "g")
            assert grandparent is not None
            kept = {entry.id for entry in grandparent.checkpoints}
            assert youngest.external_dbs[0].final_checkpoint_id in kept
            assert middle.external_dbs[0].final_checkpoint_id not in kept
        done(sim, collecting, "g", rounds=3, role="gc")
        assert done(sim, read_rows, "c", role="reader") == wanted
        assert done(sim, rows_of, "g", role="writer") == ROWS


async def destroyer(process: SimProcess, path: str, *, after_s: float = 0.0) -> None:
    await anyio.sleep(after_s)
    await destroy(DestroyTarget(store=process.store, root=path, env=process.env, metrics=process.metrics))


@row("half-built", "with its pins")
def test_a_half_built_clone_is_given_up(seed: int, reached: CoverageMarks) -> None:
    """Destroying it releases its checkpoints in the source (10.5), and the path is usable again."""
    with Simulation(seed) as sim:
        pins = ClonePins("p", "c")
        sim.watch(pins)
        done(sim, fill, "p", ROWS, leave="wal", role="writer")
        first = start(sim, cloner, request("c", "p"))
        place = sim.rng.choice(("c/manifest/", "p/manifest/", "c/wal/"))
        first.kill_after("put", place, skip=int(place == "p/manifest/"))
        sim.run(hours=1)
        begun = pins.latest(sim, "c")
        assert begun is not None
        assert not begun.initialized
        reached("half-built", when=place == "c/manifest/")
        reached("with its pins", when=place != "c/manifest/")
        done(sim, destroyer, "c")
        assert not sim.objects("c/")
        parent = pins.latest(sim, "p")
        assert parent is not None
        assert [entry for entry in parent.checkpoints if not entry.expire_s] == []
        done(sim, cloner, request("c", "p"))
        assert done(sim, rows_of, "c", role="writer") == ROWS


CASES = ("opened while half-built", "the log was collected meanwhile", "another source", "one of two sources")


@pytest.mark.fault("F6.14")
@row(*CASES)
def test_a_half_built_clone_is_finished_only_as_it_was_requested(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        sim.watch(ClonePins("p", "q", "c"))
        done(sim, fill, "p", ROWS, leave="wal", role="writer")
        done(sim, fill, "q", MORE, role="writer")
        wanted = request("c", "p")
        slow = start(sim, cloner, wanted)
        case = sim.rng.choice(CASES)
        reached(case)
        if case == "one of two sources":
            done(sim, half_of_a_union, role="writer")
            half_built = start(sim, cloner, request("u", "left", "right"))
            half_built.kill_after("put", "u/manifest/")
            again = start(sim, waiting, 5.0, request("u", "left"))
            sim.run(seconds=60)
            assert isinstance(again.error, InvalidDbState)
            again = start(sim, cloner, request("u", "left", "right"))
            sim.run(seconds=60)
            assert again.error is None
            return
        slow.freeze_before("put", "c/wal/", 3000.0)
        sim.run(seconds=5)
        before = sim.objects("c/wal/")
        if case == "opened while half-built":
            slow.kill()
            foreign = start(sim, foreign_writer, "c", role="writer")
            sim.run(seconds=60)
            assert foreign.error is None
            theirs = sim.objects("c/wal/")
            again = start(sim, cloner, wanted)
            sim.run(hours=1)
            assert isinstance(again.error, InvalidDbState)
            assert sim.objects("c/wal/") == theirs
        elif case == "another source":
            slow.kill()
            assert before == {}
            again = start(sim, cloner, request("c", "q"))
            sim.run(hours=1)
            assert isinstance(again.error, CloneIncorrectExternalDbCheckpoint)
        else:
            done_by_other = start(sim, cloner, wanted)
            sim.run(seconds=60)
            assert done_by_other.error is None
            start(sim, fill, "c", MORE, role="writer")
            start(sim, collecting, "c", role="gc")
            sim.run(hours=2)
            assert slow.error is None, slow.error
            assert not slow.result.is_new
            sim.kill_all()
            assert done(sim, rows_of, "c", role="writer") == ROWS | MORE


async def half_of_a_union(process: SimProcess) -> None:
    """Create two databases without rows in the WAL."""
    await fill(process, "left", {b"a": b"1"})
    await fill(process, "right", {b"z": b"2"})


async def foreign_writer(process: SimProcess, path: str) -> None:
    """Open an incomplete clone as SlateDB's writer does: claim the epoch and fence the WAL."""
    from shale.protocol.manifest_store import WRITER, FenceableManifest
    from shale.protocol.wal_store import WalStore

    owner = await FenceableManifest.claim(await manifests_of(process, path).load(), WRITER)
    wal = WalStore(process.store, path)
    await wal.try_put_fence(owner.value.replay_after_wal_id + 1)


@pytest.mark.fault("F6.15")
@row("the grandparent's pin went", "it stayed", "the source only seemed to need it", default=FEW_SEEDS)
def test_a_clone_is_whole_when_its_source_detaches_meanwhile(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        pins = ClonePins("g", "p", "c")
        sim.watch(pins)
        done(sim, fill, "g", ROWS, role="writer")
        done(sim, cloner, request("p", "g"))
        done(sim, fill, "p", MORE, role="writer")
        is_compacted = sim.rng.random() < 0.5
        if is_compacted:
            done(sim, compacting, "p", full=True, role="compactor")
            sim.run(minutes=20)  # The compactor keeps what it has replaced for a quarter of an hour.
        clone = start(sim, cloner, request("c", "p"))
        frozen_s = sim.rng.choice((200.0, 400.0))
        clone.freeze_after("put", "c/manifest/", frozen_s)
        sim.run(seconds=5)
        start(sim, compacting, "p", full=True, role="compactor")
        start(sim, collecting, "p", role="gc")
        sim.run(hours=2)
        sim.kill_all()
        reached("the grandparent's pin went", when=clone.error is not None)
        reached("it stayed", when=clone.error is None)
        is_ephemeral_over = frozen_s > 300
        has_gone = not pins.latest(sim, "p").external_dbs  # type: ignore[union-attr]
        reached("the source only seemed to need it", when=is_compacted and has_gone and not is_ephemeral_over)
        assert clone.error is None or not is_compacted or is_ephemeral_over, "an entry without SSTs was not left out"
        if clone.error is not None:
            assert isinstance(clone.error, CheckpointMissing)
            done(sim, cloner, request("d", "p"))
            assert done(sim, rows_of, "d", role="writer") == ROWS | MORE
        else:
            assert done(sim, rows_of, "c", role="writer") == ROWS | MORE


@pytest.mark.fault("F6.16")
@row("refused", "incomplete")
def test_a_clone_refuses_or_counts_rows_past_the_manifest(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        start(sim, fill, "p", ROWS, tables=3, leave="crash", role="writer")
        sim.run(hours=1)
        strict = sim.rng.random() < 0.5
        clone = start(sim, cloner, request("c", "p", allow_wal_gap=not strict))
        sim.run(hours=1)
        reached("refused", when=strict)
        reached("incomplete", when=not strict)
        if strict:
            assert isinstance(clone.error, InvalidDbState)
            assert not sim.objects("c/")
            done(sim, rows_of, "p", role="writer")
            done(sim, cloner, request("c", "p"))
            assert done(sim, rows_of, "c", role="writer") == ROWS
            return
        assert clone.error is None
        assert clone.result.wal_files_left_out == 1
        found = done(sim, rows_of, "c", role="writer")
        assert found != ROWS
        assert found.items() <= ROWS.items()


@pytest.mark.slow
@simulated_slowly
def test_a_swarm_of_faults(seed: int) -> None:
    with Simulation(seed, swarm=True) as sim:
        pins = ClonePins("p", "c", "d")
        sim.watch(pins)
        sim.restart_killed(20.0)
        start(sim, filling_for_ever, "p", role="writer")
        start(sim, collecting, "p", role="gc")
        tries = [start(sim, patient_cloner, request(path, "p"), [30.0] * 20) for path in ("c", "c", "d")]
        sim.run(hours=2, until=lambda: not any(process.is_running for process in tries))
        sim.run(minutes=20)  # killed ones begin again, and gc collects beside the clones
        sim.heal()
        sim.run(minutes=30)
        sim.kill_all()
        expected = CheckpointMissing | InvalidDbState | ObjectVersionExists | LatestRecordMissing | None
        for process in tries:
            assert isinstance(process.error, expected), process.error
        for path in ("c", "d"):
            if is_finished(pins, sim, path):
                done(sim, rows_of, path, role="writer")


async def filling_for_ever(process: SimProcess, path: str) -> None:
    while True:
        try:
            async with opened(process, path) as db:
                for number in range(200):
                    await db.put(b"key-%d" % process.rng.randrange(20), b"%d" % number)
                    await db.flush("memtable" if process.rng.random() < 0.3 else "wal")
                    await anyio.sleep(process.rng.uniform(0, 20))
        except ShaleError:
            await anyio.sleep(10.0)
