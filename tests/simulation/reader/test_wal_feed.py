"""The change feed returns the WAL as it was written, under all faults.

The reader records its progress as a streaming query does: it stores the end of a batch before it reads the batch, and
counts the batch once it is read completely. It is killed and restarts from that record. The expected content of the
WAL comes from every put that reached the store.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import Edge, FeedOffset
from shale.engine.wal.feed.reading import read_part
from shale.engine.wal.feed.retention import Retention
from shale.engine.wal.file import decode_wal_file
from shale.errors import FeedGap, FencedError, LatestRecordMissing
from shale.format.names import parse_wal_key, wal_key
from shale.kernels.rows import entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.mutation_log import Mutation
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Entry
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.gc.harness import collector, quick
from tests.simulation.row_model import RowModel, Told
from tests.simulation.writer.writers import writer

DAY_MS = 24 * 3600 * 1000


@dataclass
class Log:
    """Every WAL file that was ever put."""

    files: dict[int, bytes] = field(default_factory=dict)

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        wal_id = parse_wal_key("db", mutation.key)
        if wal_id is not None and mutation.op == "put" and mutation.data is not None:
            # An attempt whose answer was lost may arrive once more when the file has been collected.
            self.files.setdefault(wal_id, mutation.data)

    async def changes(self, env: Any, first_id: int, last_id: int) -> list[Entry]:
        entries: list[Entry] = []
        for wal_id in range(first_id, last_id + 1):
            entries += entries_from_rows(await decode_wal_file(memoryview(self.files[wal_id]), "log", env))
        return entries


@dataclass
class Books:
    """State that outlives the reader: offsets of batches, and the changes of completed batches."""

    offsets: list[FeedOffset] = field(default_factory=list)
    given: list[Entry] = field(default_factory=list)
    done: int = 0
    gap: str = ""


async def reader(
    process: SimProcess, books: Books, reached: CoverageMarks, *, retains: bool = False, pause_s: float = 3.0
) -> None:
    """Read batches until one finds a gap."""
    wal = WalStore(process.store, "db")
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    feed = WalFeed(wal, manifests, process.env)
    retention = Retention(manifests, process.env, name="test", lifetime_ms=DAY_MS)
    rng = process.rng
    while not books.offsets:
        try:
            kept_after = await retention.hold() if retains else 0
            books.offsets.append(await feed.begin(Edge.EARLIEST, kept_after=kept_after))
        except LatestRecordMissing:
            await anyio.sleep(1)
    if len(books.offsets) > books.done + 1:
        reached("resumed inside a batch")
    try:
        while True:
            if len(books.offsets) == books.done + 1:
                books.offsets.append(await feed.end(books.offsets[-1], max_files=rng.choice((None, 1, 3))))
            start, end = books.offsets[-2:]
            parts = await feed.plan(start, end, part_bytes=rng.choice((1, 500, 1 << 20)))
            entries: list[Entry] = []
            for part in parts:
                async for _, rows in read_part(wal, part, process.env):
                    entries += entries_from_rows(rows)
            books.given += entries
            books.done += 1
            if retains:
                await retention.move(end)
            if len(parts) > 1:
                reached("several parts")
            await anyio.sleep(rng.uniform(0, pause_s))
    except FeedGap as error:
        books.gap = str(error)
        reached("gap named")


async def failing_over(process: SimProcess, model: RowModel, **settings: Any) -> None:
    """Run a writer that ends when a newer one claims the epoch."""
    try:
        await writer(process, model, rounds=25, **settings)
    except FencedError:
        return


async def expected(process: SimProcess, log: Log, first_id: int, last_id: int) -> list[Entry]:
    return await log.changes(process.env, first_id, last_id)


class Scene:
    """Writers that fence each other and are killed, and a reader that is killed repeatedly."""

    def __init__(self, sim: Simulation, reached: CoverageMarks, **options: Any) -> None:
        self.sim = sim
        self.reached = reached
        self.model = RowModel()
        self.books = Books()
        self.log = Log()
        self.rules = DatabaseInvariants("db")
        sim.watch(self.rules, self.log)
        sim.restart_killed(5.0)
        for number in range(4):
            sim.at(number * sim.rng.uniform(2, 10), partial(self.start_writer, f"w{number}"))
        sim.start(reader, role="reader", books=self.books, reached=reached, **options)
        for _ in range(6):
            sim.at(sim.rng.uniform(0, 60), self.kill_reader)

    def start_writer(self, name: str) -> None:
        self.sim.start(failing_over, name, role="writer", model=self.model)

    def kill_reader(self) -> None:
        for process in self.sim.processes:
            if process.role == "reader" and process.is_running:
                process.kill()

    @property
    def has_caught_up(self) -> bool:
        """Return whether every file is read, or the reader has found a gap."""
        books = self.books
        is_done = books.done > 0 and books.offsets[books.done].wal_id == max(self.log.files, default=0)
        return is_done or bool(books.gap)

    def conclude(self) -> None:
        """Check that the feed returned the WAL up to the last completed batch: nothing twice, nothing missing."""
        sim, books = self.sim, self.books
        sim.run(minutes=2)
        sim.heal()
        sim.run(hours=1, until=lambda: not any(each.is_running for each in sim.processes if each.role == "writer"))
        sim.run(hours=1, until=lambda: self.has_caught_up)
        if not self.log.files:
            return
        for process in sim.processes:
            assert process.role != "reader" or process.error is None, process.error
        assert self.has_caught_up
        first, last = books.offsets[0], books.offsets[books.done]
        judge = sim.start(expected, "judge", log=self.log, first_id=first.wal_id + 1, last_id=last.wal_id)
        sim.run(minutes=1, until=lambda: judge.has_ended)
        assert books.given == judge.result
        assert [entry.seq for entry in books.given] == sorted(entry.seq for entry in books.given)
        self.reached(
            "over a fence",
            when=any(not data for wal_id, data in self.log.files.items() if first.wal_id + 1 < wal_id < last.wal_id),
        )
        if not books.gap and first.wal_id == 0:
            given = {(entry.key, entry.seq) for entry in books.given}
            for attempt in self.model.attempts:
                assert attempt.told is not Told.DURABLE or (attempt.key, attempt.seq) in given


@row("resumed inside a batch", "over a fence", "several parts")
def test_every_change_once_across_fail_over_and_restarts(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        scene = Scene(sim, reached)
        scene.conclude()
        assert not scene.books.gap


@row("gap named", "resumed inside a batch", "over a fence", "several parts", within=100)
def test_a_collector_that_takes_unread_files_is_never_silence(seed: int, reached: CoverageMarks) -> None:
    with Simulation(seed) as sim:
        scene = Scene(sim, reached)
        sim.start(collector, role="gc", options=quick(interval_s=5.0))
        scene.conclude()


@row("resumed inside a batch", "over a fence", "several parts", "kept for the reader")
def test_what_a_follower_has_not_read_is_kept(seed: int, reached: CoverageMarks) -> None:
    """The collector has no minimum age; the reader is slow, and dead for a while."""
    with Simulation(seed) as sim:
        scene = Scene(sim, reached, retains=True, pause_s=20.0)
        sim.watch(KeptFiles(scene, reached))
        sim.start(collector, role="gc", options=quick(interval_s=5.0))
        scene.conclude()
        assert not scene.books.gap


class KeptFiles:
    """Records when a file below the replay point exists that the reader still has to read."""

    def __init__(self, scene: Scene, reached: CoverageMarks) -> None:
        self._scene = scene
        self._reached = reached

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        books = self._scene.books
        if mutation.role != "gc" or mutation.op != "delete" or not books.offsets:
            return
        replay_after = self._scene.rules.manifests.latest.replay_after_wal_id
        unread = range(books.offsets[books.done].wal_id + 1, replay_after)
        held = any(sim.objects(wal_key("db", wal_id)).get(wal_key("db", wal_id)) for wal_id in unread)
        self._reached("kept for the reader", when=held)
