"""Views against a model: the newest visible version of every key, however it is spread over tables, L0s and runs."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import anyio
import pytest

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.lookup import PendingLookup, get, lookup, lookup_value
from shale.engine.read.multi_get import get_many
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.super_version import SuperVersion
from shale.errors import CorruptionError, MergeOperatorMissing
from shale.kernels.rows import rows_from_entries
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Segment,
    Seq,
    SortedRun,
    SstView,
    Tree,
    excluded,
    included,
)
from tests.plain_kernels import without_kernels
from tests.unit.engine.reading import Shelf, in_order, scan_of

KINDS = (FLAG_CREATE_TS, FLAG_CREATE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS, 0, FLAG_CREATE_TS | FLAG_TOMBSTONE)


def concatenate(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


class Database:
    """A random history, cut by age into runs, L0s and memtables."""

    def __init__(self, rng: Random, *, merges: bool) -> None:
        self.rng = rng
        self.keys = [b"k%0*d" % (rng.choice((2, 3, 9)), number) for number in range(rng.choice((3, 40, 120)))]
        kinds = (*KINDS, *((FLAG_CREATE_TS | FLAG_MERGE,) * 3 if merges else ()))
        count = rng.choice((5, 60, 700))
        self.history = [self._entry(seq, rng.choice(kinds)) for seq in range(1, count + 1)]

    def _entry(self, seq: int, flags: int) -> Entry:
        value = b"" if flags & FLAG_TOMBSTONE else self.rng.randbytes(self.rng.choice((0, 3, 30, 300)))
        expire = 99 if flags & FLAG_EXPIRE_TS else 0
        return Entry(self.rng.choice(self.keys), value, seq, flags, 7 if flags & FLAG_CREATE_TS else 0, expire)

    def expected(self, key: bytes, max_seq: int) -> bytes | None:
        operands: list[bytes] = []
        for entry in reversed(self.history):
            if entry.key == key and entry.seq <= max_seq:
                if not entry.is_merge:
                    base = None if entry.is_tombstone else entry.value
                    return concatenate(key, base, operands[::-1]) if operands or base is not None else None
                operands.append(entry.value)
        return concatenate(key, None, operands[::-1]) if operands else None

    async def place(self, shelf: Shelf) -> tuple[Manifest, list[Memtable]]:
        """Old rows into two runs, newer ones into L0s, the newest into memtables."""
        cuts = sorted(self.rng.choices(range(len(self.history) + 1), k=6))
        parts = [self.history[a:b] for a, b in zip([0, *cuts], [*cuts, len(self.history)], strict=True)]
        runs = [await self._run(shelf, RunId(number), part) for number, part in enumerate(parts[:2]) if part]
        l0 = [await shelf.view(in_order(part)) for part in parts[2:5] if part]
        tables = [Memtable.from_rows(rows_from_entries(in_order(part))) for part in parts[5:] if part]
        tree = Tree(l0=tuple(reversed(l0)), compacted=tuple(reversed(runs)))
        return Manifest(tree=tree, last_l0_seq=Seq(cuts[4])), tables[::-1]

    async def _run(self, shelf: Shelf, run_id: RunId, part: list[Entry]) -> SortedRun:
        """Cut anywhere, also between two versions of a key."""
        rows = in_order(part)
        cuts = sorted({*self.rng.choices(range(1, len(rows) + 1), k=3), len(rows)})
        pieces = [rows[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
        return SortedRun(id=run_id, ssts=tuple([await shelf.view(piece) for piece in pieces if piece]))


@pytest.mark.parametrize("kernel", [False, True], ids=["plain", "kernel"])
@pytest.mark.parametrize("seed", range(12))
def test_every_key_at_every_time(seed: int, kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        without_kernels(monkeypatch)
    """``get``, ``get_many`` and ``scan`` agree with the history, with a cache that holds everything or nothing."""
    rng = Random(seed)
    database = Database(rng, merges=seed % 2 == 0)

    async def run() -> None:
        shelf = Shelf(cache_bytes=rng.choice((0, 20_000, 1 << 20)), min_filter_keys=rng.choice((0, 1 << 30)))
        manifest, tables = await database.place(shelf)
        options = ReadOptions(merge_operator=concatenate, read_ahead_bytes=2000)
        view = SuperVersion(manifest, tables, shelf.reader, options)
        last = len(database.history)
        keys = [*database.keys, b"k", b"absent", b"\xff" * 9]
        for max_seq in (None, *rng.choices(range(last + 1), k=2)):
            limit = last if max_seq is None else max_seq
            expected = {key: database.expected(key, limit) for key in keys}
            for key in keys:
                for _ in range(2):
                    entry = await get(view, key, max_seq)
                    assert (None if entry is None else entry.value) == expected[key], (key, max_seq)
                    value = lookup_value(view, key, max_seq)
                    assert type(value) is PendingLookup or value == expected[key], (key, max_seq)
            assert await get_many(view, keys, max_seq) == [expected[key] for key in keys]
            live = [(key, value) for key, value in sorted(expected.items()) if value is not None]
            rows = [row async for row in scan_of(view, max_seq=max_seq)]
            assert [(row.key, row.value) for row in rows] == live
            low, high = sorted(rng.choices(keys, k=2))
            part = scan_of(view, KeyRange(included(low), excluded(high)), max_seq=max_seq, limit=5)
            assert [row async for row in part] == [row for row in rows if low <= row.key < high][:5]

    anyio.run(run)


def test_times_come_back_as_they_were_written() -> None:
    async def run() -> None:
        shelf = Shelf()
        rows = [
            Entry(b"a", b"1", 1, FLAG_CREATE_TS | FLAG_EXPIRE_TS, 5, 9),
            Entry(b"b", b"", 2, 0),
            Entry(b"c", b"3", 3, FLAG_EXPIRE_TS, 0, 4),
        ]
        manifest = Manifest(tree=Tree(l0=(await shelf.view(rows),)), last_l0_seq=Seq(3))
        view = SuperVersion(manifest, (), shelf.reader, ReadOptions())
        assert [tuple(row) for row in [row async for row in scan_of(view)]] == [
            (b"a", b"1", 1, 5, 9),
            (b"b", b"", 2, None, None),
            (b"c", b"3", 3, None, 4),
        ]
        assert [await get(view, row.key) for row in rows] == rows

    anyio.run(run)


@pytest.mark.parametrize("kernel", [False, True], ids=["plain", "kernel"])
@pytest.mark.parametrize(
    "window",
    [
        pytest.param(KeyRange(included(b"k05"), included(b"k10")), id="both ends"),
        pytest.param(KeyRange(excluded(b"k05"), excluded(b"k10")), id="neither end"),
        pytest.param(KeyRange(included(b"k05")), id="no end"),
        pytest.param(KeyRange.half_open(None, b"k05"), id="no start"),
    ],
)
def test_only_what_the_window_shows_exists(window: KeyRange, kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        without_kernels(monkeypatch)

    async def run() -> None:
        shelf = Shelf()
        rows = [Entry(b"k%02d" % number, b"v", number + 1, 0) for number in range(20)]
        below = await shelf.view([Entry(b"k05", b"old", 0, 0)])
        view = SuperVersion(
            Manifest(tree=Tree(l0=(await shelf.view(rows, window), below)), last_l0_seq=Seq(99)),
            (),
            shelf.reader,
            ReadOptions(),
        )
        expected = {row.key: row.value for row in rows if window.contains(row.key)}
        expected.setdefault(b"k05", b"old")
        for _ in range(2):
            assert {row.key: row.value for row in [row async for row in scan_of(view)]} == expected
            for row in rows:
                entry = await get(view, row.key)
                assert (None if entry is None else entry.value) == expected.get(row.key)

    anyio.run(run)


def test_rows_above_the_last_l0_seq_are_invisible_in_ssts() -> None:
    """The manifest says how far its SSTs count (docs/reference/format.md 4.2)."""

    async def run() -> None:
        shelf = Shelf()
        l0 = await shelf.view([Entry(b"a", b"new", 9, 0), Entry(b"a", b"old", 3, 0), Entry(b"b", b"new", 8, 0)])
        view = SuperVersion(Manifest(tree=Tree(l0=(l0,)), last_l0_seq=Seq(7)), (), shelf.reader, ReadOptions())
        assert [(row.key, row.value) for row in [row async for row in scan_of(view)]] == [(b"a", b"old")]
        for max_seq in (None, 100):
            found = await get(view, b"a", max_seq)
            assert found is not None
            assert found.value == b"old"
            assert await get(view, b"b", max_seq) is None

    anyio.run(run)


def test_values_of_any_size_by_the_kernel() -> None:
    """Small ones are copied by it, large ones are not, and it says nothing of what is no value."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=1 << 20)
        values = {b"%05d" % size: b"v" * size for size in (0, 1, 100, 4095, 4096, 4097, 20_000)}
        entries = [Entry(key, value, 1, 0) for key, value in values.items()]
        entries += [Entry(b"deleted", b"", 2, FLAG_TOMBSTONE), Entry(b"merged", b"x", 3, FLAG_MERGE)]
        tree = Tree(l0=(await shelf.view(in_order(entries)),))
        options = ReadOptions(merge_operator=concatenate)
        view = SuperVersion(Manifest(tree=tree, last_l0_seq=Seq(3)), (), shelf.reader, options)
        expected = {**values, b"deleted": None, b"merged": b"x", b"absent": None}
        assert await get_many(view, list(expected)) == list(expected.values())
        for _ in range(2):
            assert {key: lookup_value(view, key) for key in expected} == expected
        assert await get_many(view, list(expected)) == list(expected.values())
        assert await get_many(view, [b"absent"] * 9) == [None] * 9

    anyio.run(run)


def test_segments_are_routed_by_prefix() -> None:
    async def run() -> None:
        shelf = Shelf()
        names = (b"aa", b"bb", b"c")
        rows = {name: [Entry(name + b"%d" % n, name, n + 1, 0) for n in range(3)] for name in names}
        manifest = Manifest(
            segments=tuple([Segment(prefix=n, tree=Tree(l0=(await shelf.view(rows[n]),))) for n in names]),
            segment_extractor_name="x",
            last_l0_seq=Seq(9),
        )
        table = Memtable.from_rows(rows_from_entries([Entry(b"b9", b"new segment", 10, 0)]))
        view = SuperVersion(manifest, (table,), shelf.reader, ReadOptions())
        everything = [entry.key for name in names for entry in rows[name]]
        assert [row.key async for row in scan_of(view)] == sorted([*everything, b"b9"])
        assert [row.key async for row in scan_of(view, KeyRange.with_prefix(b"bb"))] == [b"bb0", b"bb1", b"bb2"]
        assert [row.key async for row in scan_of(view, KeyRange(included(b"aa2"), included(b"bb0")))] == [
            b"aa2",
            b"b9",
            b"bb0",
        ]
        for key in everything:
            entry = await get(view, key)
            assert entry is not None
            assert entry.key == key
        assert await get(view, b"a") is None
        assert await get(view, b"d") is None

    anyio.run(run)


def test_an_operand_without_an_operator_is_refused() -> None:
    async def run() -> None:
        shelf = Shelf()
        l0 = await shelf.view([Entry(b"m", b"x", 1, FLAG_MERGE)])
        view = SuperVersion(Manifest(tree=Tree(l0=(l0,)), last_l0_seq=Seq(1)), (), shelf.reader, ReadOptions())
        with pytest.raises(MergeOperatorMissing):
            await get(view, b"m")
        with pytest.raises(MergeOperatorMissing):
            await scan_of(view).columns()

    anyio.run(run)


def test_a_cold_get_over_four_l0s_takes_two_round_trips() -> None:
    """All metadata at once, then all blocks at once; a second get needs nothing, and other keys only their blocks."""

    async def run() -> None:
        shelf = Shelf(min_filter_keys=1 << 30)
        views: list[SstView] = []
        for number in range(4):
            rows = [Entry(b"k%04d" % key, b"v" * 50, number * 1000 + key + 1, 0) for key in range(number, 900, 4)]
            views.append(await shelf.view(rows))
        manifest = Manifest(tree=Tree(l0=tuple(reversed(views))), last_l0_seq=Seq(10**6))
        view = SuperVersion(manifest, (), shelf.reader, ReadOptions())
        trips = Trips(shelf)
        assert type(lookup(view, b"k0400")) is PendingLookup
        assert await get(view, b"k0400") is not None
        assert trips.depth == 2
        assert len(shelf.store.reads) == 8
        assert type(lookup(view, b"k0400")) is Entry
        await get(view, b"k0800")
        assert len(shelf.store.reads) == 12

    anyio.run(run)


class Trips:
    """Counts requests that waited for others: a request that begins after another has ended is one trip deeper."""

    def __init__(self, shelf: Shelf) -> None:
        self.depth = self._open = 0
        inner = shelf.store.get_range

        async def get_range(key: str, start: int, end: int) -> memoryview | None:
            if not self._open:
                self.depth += 1
            self._open += 1
            await anyio.sleep(0.01)
            self._open -= 1
            return await inner(key, start, end)

        shelf.store.get_range = get_range  # type: ignore[method-assign]


def corruptions(shelf: Shelf) -> float | None:
    return shelf.metrics.registry.get_sample_value("slatedb_corruption_total", {"db": "", "resource": "compacted"})


def test_a_damaged_block_is_named() -> None:
    async def run() -> None:
        shelf = Shelf()
        l0 = await shelf.view([Entry(b"k%03d" % key, b"v" * 50, key + 1, 0) for key in range(100)])
        key = f"db/compacted/{l0.sst.id}.sst"
        got = await shelf.store.get(key)
        assert got is not None
        data = bytearray(got.data)
        data[1500] ^= 1
        await shelf.store.put(key, bytes(data))
        view = SuperVersion(Manifest(tree=Tree(l0=(l0,)), last_l0_seq=Seq(100)), (), shelf.reader, ReadOptions())
        meta = await shelf.reader.meta(l0.sst)
        second = int(meta.index.offsets[1])
        assert corruptions(shelf) == 0
        with pytest.raises(CorruptionError) as lookup:
            await get(view, b"k020")
        with pytest.raises(CorruptionError) as scan:
            await scan_of(view).columns()
        assert (lookup.value.path, lookup.value.offset) == (scan.value.path, scan.value.offset) == (key, second)
        assert corruptions(shelf) == 2
        await shelf.store.delete(key)
        with pytest.raises(CorruptionError, match="does not exist") as gone:
            await get(view, b"k090")
        assert gone.value.path == key

    anyio.run(run)


def test_a_new_manifest_takes_over_the_levels_of_unchanged_runs() -> None:
    """An update of the manifest costs what it changes: runs of thousands of SSTs are not looked at again."""

    async def run() -> None:
        shelf = Shelf()
        old_l0, new_l0, *ssts = [await shelf.view([Entry(b"k%d" % key, b"v", key + 1, 0)]) for key in range(5)]
        runs = (SortedRun(id=RunId(1), ssts=tuple(ssts)),)
        manifest = Manifest(tree=Tree(l0=(old_l0,), compacted=runs), last_l0_seq=Seq(5))
        before = SuperVersion(manifest, (), shelf.reader, ReadOptions())
        flushed = replace(manifest, tree=replace(manifest.tree, l0=(new_l0, old_l0)))
        after = SuperVersion(flushed, (), shelf.reader, ReadOptions(), previous=before)
        (old_tree,), (new_tree,) = before.trees.lookups, after.trees.lookups
        assert [old is new for old, new in zip(old_tree.levels, new_tree.levels[1:], strict=True)] == [True, True]
        assert [await get_value(after, b"k%d" % key) for key in range(5)] == [b"v"] * 5
        assert await get_value(before, b"k1") is None

    async def get_value(view: SuperVersion, key: bytes) -> bytes | None:
        entry = await get(view, key)
        return None if entry is None else entry.value

    anyio.run(run)
