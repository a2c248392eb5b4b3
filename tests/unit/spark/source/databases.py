"""Databases with rows in runs, L0s and the WAL, in a memory store with a URL."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from shale.engine.location import DatabaseLocation, resolve
from shale.env import Env, InlineCpu, SystemClock
from shale.format.manifest import encode_manifest
from shale.format.names import manifest_key, wal_key
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.sst.wal_builder import build_wal_sst
from shale.store.connect import open_store
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_TOMBSTONE,
    Compression,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Segment,
    Seq,
    SortedRun,
    SstView,
    Tree,
    Ulid,
    WalId,
)
from shale_spark.source.plan_reader import open_rows
from shale_spark.source.read_plan import ReadPlan
from tests.unit.compactor.ssts import write_view

_numbers = itertools.count()


class ShiftedClock(SystemClock):
    """The machine's clock, moved by the test."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


class Database:
    """One store with one database, and its expected rows."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = Random(seed)
        self.clock = ShiftedClock()
        self.env = Env(self.clock, Random(seed), InlineCpu())
        self.url = f"memory://test{next(_numbers)}/"
        self.store = open_store(self.url)
        self.where: DatabaseLocation = resolve("db", store=self.url)
        self.history: list[Entry] = []
        self._ulids = itertools.count(1)

    async def fill(self, count: int, *, value_bytes: int = 30, segmented: bool = False, in_wal: bool = True) -> None:
        """Write a random history into two runs, up to three L0s and, on request, up to four WAL files."""
        rng = self.rng
        keys = [b"k%0*d" % (rng.choice((2, 3, 5)), number) for number in range(max(1, count // 3))]
        self.history = [self._entry(rng.choice(keys), seq, value_bytes) for seq in range(1, count + 1)]
        cuts = sorted(rng.choices(range(count + 1), k=8))
        if not in_wal:
            cuts[4:] = [count] * 4
        parts = [self.history[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
        runs = [await self._run(number, part) for number, part in enumerate(parts[:2]) if part]
        views = [await self._view(part) for part in parts[2:5] if part]
        tree = Tree(l0=tuple(reversed(views)), compacted=tuple(reversed(runs)))
        for wal_id, part in enumerate(parts[5:], start=3):
            data = build_wal_sst(rows_from_entries(part), Compression.NONE) if part else b""
            await self.store.put(wal_key("db", wal_id), data)
        manifest = Manifest(
            tree=Tree() if segmented else tree,
            segments=(Segment(prefix=b"k", tree=tree),) if segmented else (),
            segment_extractor_name="first" if segmented else None,
            last_l0_seq=Seq(cuts[4]),
            replay_after_wal_id=WalId(2),
            next_wal_sst_id=WalId(3),
        )
        await self.write_manifest(1, manifest)

    async def write_manifest(self, version: int, manifest: Manifest) -> None:
        """Store a version unchanged."""
        await self.store.put(manifest_key("db", version), encode_manifest(manifest))

    async def flush(self) -> None:
        """Flush the WAL to one L0, as the next version of the manifest."""
        stored = await ManifestStore(self.store, "db", self.env).load()
        view = await self._view(self.history[stored.value.last_l0_seq :])

        def change(current: Versioned[Manifest]) -> Manifest:
            tree = replace(current.value.tree, l0=(view, *current.value.tree.l0))
            last = Seq(len(self.history))
            return replace(
                current.value, tree=tree, last_l0_seq=last, replay_after_wal_id=WalId(6), next_wal_sst_id=WalId(7)
            )

        await stored.apply(change)

    async def compact(self) -> None:
        """Merge all live rows into one new run, so that the old SSTs are unreferenced."""
        stored = await ManifestStore(self.store, "db", self.env).load()
        run = SortedRun(id=RunId(9), ssts=(await self._view(list(self.live().values())),))
        tree = Tree(compacted=(run,))
        await stored.apply(lambda current: replace(current.value, tree=tree))

    def live(self, last_seq: int | None = None) -> dict[bytes, Entry]:
        """Return the rows that a reader sees, by key."""
        newest: dict[bytes, Entry] = {}
        for entry in self.history[:last_seq]:
            newest[entry.key] = entry
        return {key: entry for key, entry in sorted(newest.items()) if not entry.is_tombstone}

    def _entry(self, key: bytes, seq: int, value_bytes: int) -> Entry:
        if self.rng.random() < 0.2:
            return Entry(key, b"", seq, FLAG_CREATE_TS | FLAG_TOMBSTONE, 1000 + seq)
        return Entry(key, self.rng.randbytes(self.rng.randint(0, value_bytes)), seq, FLAG_CREATE_TS, 1000 + seq)

    async def _view(self, part: Sequence[Entry]) -> SstView:
        ulid = Ulid.from_parts(1_700_000_000_000 + next(self._ulids), 1)
        return await write_view(self.store, "db", ulid, part, block_size_bytes=512)

    async def _run(self, number: int, part: Sequence[Entry]) -> SortedRun:
        rows = sorted(part, key=lambda entry: (entry.key, -entry.seq))
        cuts = sorted({*self.rng.choices(range(1, len(rows) + 1), k=3), len(rows)})
        pieces = [rows[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
        views = [await self._view(piece) for piece in pieces]
        window = self.rng.choice([None, KeyRange()])
        return SortedRun(id=RunId(number), ssts=tuple(replace(view, visible_range=window) for view in views))


async def rows_of_plan(plan: ReadPlan, env: Env) -> Rows:
    """Return the rows that a task of this plan reads, after serialization of the plan."""
    chunks = []
    async with open_rows(ReadPlan.decode(plan.encode()), env) as source:
        while (rows := await source.next()) is not None:
            chunks.append(rows)
    return concat_rows(chunks)


async def entries_of(plans: Sequence[ReadPlan], env: Env) -> list[Entry]:
    """Return the rows that all tasks read, in the order of the plans."""
    return [entry for plan in plans for entry in entries_from_rows(await rows_of_plan(plan, env))]
