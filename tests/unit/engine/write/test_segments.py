"""Segments at write time: routes, prefixes that may not nest, one tree for each.

Source: docs/reference/protocol.md 4.1.3, 4.5, 4.8.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shale
from shale.engine.memtable.sorted_part import SortedPart
from shale.engine.write.segments import SegmentRouter, require_extractor, require_no_nesting, segment_of, segments_in
from shale.errors import (
    EmptySegmentPrefix,
    InvalidRequestError,
    InvalidSegmentPrefix,
    SegmentExtractorMismatch,
    SegmentPrefixNotRecognized,
)
from shale.format.manifest import decode_manifest
from shale.format.names import manifest_key
from shale.format.sst.filter_policy import FixedPrefix
from shale.kernels.rows import rows_from_entries
from shale.store.memory import MemoryStore
from shale.types import FLAG_CREATE_TS, Entry, Manifest, Segment, Tree


@dataclass(frozen=True)
class UpTo:
    """An extractor: everything up to and including the first ``mark``."""

    mark: bytes = b"/"
    name: str = "up-to"

    def prefix_len(self, key: bytes) -> int | None:
        place = key.find(self.mark)
        return None if place < 0 else place + 1

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        return self.prefix_len(prefix)


@dataclass(frozen=True)
class Lengths:
    """An extractor that reads the length of the prefix from the last byte of each key, a digit."""

    name: str = "lengths"

    def prefix_len(self, key: bytes) -> int | None:
        return key[-1] - ord("0")

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        return len(prefix)


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, "segment_extractor": UpTo(), **settings})


async def stored_manifest(store: MemoryStore) -> Manifest:
    keys = [meta.key for meta in await store.list("db/manifest/")]
    return decode_manifest((await store.get(max(keys))).data)


def batch_of(*keys: bytes) -> shale.WriteBatch:
    batch = shale.WriteBatch()
    for key in keys:
        batch.put(key, b"value")
    return batch


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


PREFIXES = st.sets(st.binary(min_size=1, max_size=3).map(lambda data: bytes(byte % 3 for byte in data)), max_size=6)


@given(PREFIXES, st.binary(min_size=1, max_size=3).map(lambda data: bytes(byte % 3 for byte in data)))
def test_nesting_is_found_among_any_prefixes(drawn: set[bytes], prefix: bytes) -> None:
    others = sorted(p for p in drawn if not any(p != q and p.startswith(q) for q in drawn))
    nests = any(prefix != other and (prefix.startswith(other) or other.startswith(prefix)) for other in others)
    if nests and prefix not in others:
        with pytest.raises(InvalidSegmentPrefix):
            require_no_nesting(prefix, others)
    else:
        assert require_no_nesting(prefix, others) == (prefix in others)


def test_segments_of_sorted_rows_are_found_with_a_question_each() -> None:
    asked: list[bytes] = []

    class Asked(UpTo):
        def prefix_len(self, key: bytes) -> int | None:
            asked.append(key)
            return super().prefix_len(key)

    keys = [b"a/1", b"a/2", b"a/3", b"b/", b"\xff\xff/1", b"\xff\xff/2"]
    part = SortedPart(rows_from_entries([Entry(key, b"", 1, FLAG_CREATE_TS, 0) for key in keys]))
    assert segments_in(Asked(), part) == [b"a/", b"b/", b"\xff\xff/"]
    assert asked == [b"a/1", b"b/", b"\xff\xff/1"]


def test_a_refused_batch_leaves_no_trace_in_the_router() -> None:
    router = SegmentRouter(Lengths(), lambda: [[b"old"]])
    router.admit(b"abc-3")
    for prefixes in ([b"x", b"xy"], [b"k", b"abcd"], [b"k", b"ol"], [b"k", b"old-"]):
        with pytest.raises(InvalidSegmentPrefix):
            router.admit_all(prefixes)
    router.admit_all([b"old", b"abc", b"k"])
    assert router.take() == (b"abc", b"k", b"old")
    assert router.take() == ()


def test_the_router_knows_the_segments_of_memory_and_of_the_manifest() -> None:
    touched: list[int] = []
    router = SegmentRouter(UpTo(), lambda: [[b"m/", b"z/"], [b"b/"]], lambda: touched.append(1))
    assert router.known == [b"b/", b"m/", b"z/"]
    for key, changes in ((b"k/1", 1), (b"k/2", 1), (b"m/1", 2), (b"a/1", 3), (b"m/2", 3)):
        router.admit(key)
        assert len(touched) == changes
    for prefixes, changes in (([], 3), ([b"a/", b"m/"], 3), ([b"b/", b"c/", b"a/"], 4), ([b"c/"], 4)):
        router.admit_all(prefixes)
        assert len(touched) == changes
    assert router.known == [b"a/", b"b/", b"c/", b"k/", b"m/", b"z/"]
    assert router.segments_of([b"k/1", b"q/", b"k/2"]) == {b"k/", b"q/"}
    assert router.take() == (b"a/", b"b/", b"c/", b"k/", b"m/")
    router.restore([b"y/", b"x/"])
    router.admit(b"x/1")
    assert router.take() == (b"x/", b"y/")
    assert len(touched) == 4


@pytest.mark.parametrize(
    ("touched", "older", "prefix", "is_refused"),
    [
        pytest.param([b"ab"], [], b"ab", False, id="the same in the table"),
        pytest.param([b"aa", b"ab"], [], b"abc", True, id="below one in the table"),
        pytest.param([b"ab"], [], b"a", True, id="above one in the table"),
        pytest.param([], [[b"ab"]], b"ab", False, id="the same in an older one"),
        pytest.param([], [[b"x"], [b"ab"]], b"abc", True, id="below one in the second older one"),
        pytest.param([], [[b"x"], [b"ab"]], b"a", True, id="above one in the second older one"),
        pytest.param([b"aa", b"b"], [[b"ac"]], b"ab", False, id="between"),
    ],
)
def test_a_prefix_is_compared_with_all_others(
    touched: list[bytes], older: list[list[bytes]], prefix: bytes, *, is_refused: bool
) -> None:
    def routers() -> list[SegmentRouter]:
        made = [SegmentRouter(FixedPrefix("f", len(prefix)), lambda: older) for _ in range(2)]
        for each in made:
            each.restore(touched)
        return made

    for router, admit in zip(
        routers(), (lambda each: each.admit(prefix), lambda each: each.admit_all([prefix])), strict=True
    ):
        if is_refused:
            with pytest.raises(InvalidSegmentPrefix, match=rf"{prefix.decode()!r} nests with the segment 'ab'"):
                admit(router)
            assert router.take() == tuple(touched)
        else:
            admit(router)
            assert router.take() == tuple(sorted({*touched, prefix}))


def test_a_key_is_its_own_segment_and_no_longer_one() -> None:
    extractor = Lengths()
    assert segment_of(extractor, b"ab3") == b"ab3"
    assert segment_of(extractor, b"ab1") == b"a"
    with pytest.raises(EmptySegmentPrefix, match="gives no prefix for the key 'ab0'"):
        segment_of(extractor, b"ab0")
    for key in (b"ab4", b"ab/"):
        with pytest.raises(InvalidRequestError, match=rf"gives the length {key[-1] - 48} for a key of 3 bytes"):
            segment_of(extractor, key)


def test_a_long_key_is_shown_in_part() -> None:
    for length, shown in ((40, r"'x{40}'$"), (41, r"'x{40}'… \(41 bytes\)$")):
        with pytest.raises(EmptySegmentPrefix, match=shown):
            segment_of(UpTo(), b"x" * length)


@pytest.mark.parametrize("built_in", [True, False])
def test_the_segments_of_columns(built_in: bool) -> None:
    """A user's extractor is asked for each row: its segments need not be ranges of keys."""
    extractor = FixedPrefix("first", 1) if built_in else Lengths()
    router = SegmentRouter(extractor, list)
    keys = [b"a1", b"a2", b"b1", b"bc1", b"d2"]
    part = SortedPart(rows_from_entries([Entry(key, b"", 1, FLAG_CREATE_TS, 0) for key in keys]))
    expected = [b"a", b"b", b"d"] if built_in else [b"a", b"a2", b"b", b"d2"]
    assert router.segments_of_columns(part) == expected


def test_each_segment_becomes_a_tree_and_all_of_a_flush_come_with_one_version() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            rows = {b"%s/%d" % (name, n): b"%d" % n for name in (b"b", b"a", b"long-name") for n in range(40)}
            async with db.batch() as batch:
                for key, value in rows.items():
                    batch.put(key, value)
            before = db.status.manifest_id
            await db.flush("memtable")
            assert db.status.manifest_id == before + 1
            manifest = await stored_manifest(store)
            assert manifest.segment_extractor_name == "up-to"
            assert manifest.tree.is_empty
            assert [segment.prefix for segment in manifest.segments] == [b"a/", b"b/", b"long-name/"]
            assert all(len(segment.tree.l0) == 1 for segment in manifest.segments)
            for segment in manifest.segments:
                info = segment.tree.l0[0].sst.info
                assert info.first_entry == segment.prefix + b"0"
                assert info.last_entry == segment.prefix + b"9"
            # Only what is written goes to a tree; the others keep what they have.
            await db.put(b"b/more", b"1")
            await db.flush("memtable")
            assert [len(segment.tree.l0) for segment in db.status.manifest.segments] == [1, 2, 1]
            assert await contents(db) == {**rows, b"b/more": b"1"}
            assert await db.get(b"long-name/7") == b"7"
        async with open_db(store, segment_extractor=UpTo()) as db:
            assert await contents(db) == {**rows, b"b/more": b"1"}

    run(scenario)


def test_writes_that_have_no_tree_are_refused_and_leave_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, flush_interval=None) as db:
            with pytest.raises(EmptySegmentPrefix, match="nothing"):
                await db.put(b"nothing", b"")
            with pytest.raises(EmptySegmentPrefix):
                await db.delete(b"nothing")
            with pytest.raises(EmptySegmentPrefix):
                await db.write(batch_of(b"a/1", b"nothing"))
            assert (db.status.last_seq, db.status.unflushed_bytes) == (0, 0)
            await db.flush("wal")
            assert len(await store.list("db/wal/")) == 1, "only the fence"

    run(scenario)


@pytest.mark.parametrize("where", ["memtable", "frozen", "manifest", "replayed"])
def test_prefixes_never_nest_wherever_the_other_one_is(where: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        settings: dict[str, Any] = {"segment_extractor": Lengths(), "flush_interval": None, "l0_max_ssts": 1}
        db = await open_db(store, **settings)
        await db.put(b"abc-3", b"")
        if where == "manifest":
            await db.flush("memtable")
        elif where == "frozen":
            await db.flush("memtable")
            await db.put(b"abcd-3", b"")  # the same segment, whose L0 is full now
            await db.put(b"xyz-3", b"")
            db._pipeline.freeze()
        elif where == "replayed":
            await db.flush("wal")
            await db.close("none")
            db = await open_db(store, **settings)
        seq = db.status.last_seq
        nested = [(b"ab-2", b"ab"), (b"abcd4", b"abcd")]
        nested += [(b"xy-2", b"xy"), (b"xyzz4", b"xyzz")] if where == "frozen" else []
        for key, prefix in nested:
            with pytest.raises(InvalidSegmentPrefix, match=prefix.decode()):
                await db.put(key, b"")
        with pytest.raises(InvalidSegmentPrefix):
            await db.write(batch_of(b"q-1", b"qr2"))
        assert db.status.last_seq == seq
        await db.put(b"abc!3", b"")
        await db.close("wal")

    run(scenario)


def test_an_impossible_length_is_the_callers_mistake() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, segment_extractor=Lengths()) as db:
            with pytest.raises(InvalidRequestError, match="length 9"):
                await db.put(b"a9", b"")

    run(scenario)


def test_only_the_extractor_that_made_the_segments_opens_them() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"ab/1", b"")
        for extractor in (None, FixedPrefix("other", 3), UpTo(name="up-to-2")):
            with pytest.raises(SegmentExtractorMismatch):
                await open_db(store, segment_extractor=extractor)
        with pytest.raises(SegmentPrefixNotRecognized, match="ab/"):
            await open_db(store, segment_extractor=UpTo(mark=b"b"))
        async with shale.Db.open("plain", store=store):
            pass
        with pytest.raises(SegmentExtractorMismatch):
            await shale.Db.open("plain", store=store, segment_extractor=UpTo())

    run(scenario)


def test_what_is_replayed_goes_to_its_segments() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, l0_sst_size_bytes=2000)
        for number in range(60):
            handle = await db.put(b"%d/%d" % (number % 3, number), bytes(20))
        await handle.durable()
        await db.close("none")
        async with open_db(store, l0_sst_size_bytes=400) as db:
            assert len(await contents(db)) == 60
            await db.flush("memtable")
            assert [segment.prefix for segment in db.status.manifest.segments] == [b"0/", b"1/", b"2/"]
            assert len(await contents(db)) == 60
        async with shale.DbReader.open("db", store=store, segment_extractor=UpTo()) as reader:
            assert len([row async for row in reader.scan()]) == 60

    run(scenario)


def test_the_first_version_of_a_database_names_its_extractor() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        first = decode_manifest((await store.get(manifest_key("db", 1))).data)
        assert first == Manifest(segment_extractor_name="up-to")
        await db.close()

    run(scenario)


MISMATCH, UNKNOWN = SegmentExtractorMismatch, SegmentPrefixNotRecognized


@pytest.mark.parametrize(
    ("stored", "extractor", "prefix", "error"),
    [
        (None, None, None, None),
        (None, None, b"a/", MISMATCH),
        ("up-to", None, None, MISMATCH),
        (None, UpTo(), None, MISMATCH),
        ("lengths", UpTo(), None, MISMATCH),
        ("up-to", UpTo(), None, None),
        ("up-to", UpTo(), b"a/", None),
        ("up-to", UpTo(), b"a", UNKNOWN),
        ("up-to", UpTo(), b"a/b", UNKNOWN),
    ],
)
def test_a_database_is_opened_with_the_extractor_of_its_segments_only(
    stored: str | None, extractor: UpTo | None, prefix: bytes | None, error: type[Exception] | None
) -> None:
    segments = () if prefix is None else (Segment(prefix=prefix, tree=Tree()),)
    manifest = Manifest(segment_extractor_name=stored, segments=segments)
    if error is None:
        require_extractor(manifest, extractor, "db")
    else:
        with pytest.raises(error, match="the database at db "):
            require_extractor(manifest, extractor, "db")
