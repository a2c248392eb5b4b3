"""A million objects with a million findings: memory stays small, and all findings are counted."""

import collections
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterable

import anyio
import pytest

from shale.admin.verify import findings as findings_module
from shale.admin.verify.findings import Findings, worst_first
from shale.admin.verify.listing import STRAYS_MAX, ListedSst, Listing
from shale.admin.verify.versions import HOLES_MAX
from shale.format.names import manifest_prefix, sst_key, wal_key
from shale.protocol.wal_store import WalFile
from shale.sst.verify.codes import Code, Severity
from shale.sst.verify.finding import Finding
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta
from shale.types import Ulid, WalId
from tests.unit.admin.verify.harness import OLD_MS, PATH, Harness

OBJECTS = 10_000
PER_OBJECT_BYTES = 40
T0_MS = 1_700_000_000_000


def pages(metas: Iterable[ObjectMeta]) -> Iterable[list[ObjectMeta]]:
    page: list[ObjectMeta] = []
    for meta in metas:
        page.append(meta)
        if len(page) == 1000:
            yield page
            page = []


def meta(key: str, size: int = 7) -> ObjectMeta:
    return ObjectMeta(key, size, T0_MS)


@pytest.mark.parametrize("kind", ["ssts", "wal"])
def test_a_listing_takes_some_bytes_for_each_object(kind: str) -> None:
    def keys() -> Iterable[str]:
        for number in range(OBJECTS):
            sst_id = Ulid.from_parts(T0_MS + number, number << 60)
            yield sst_key(PATH, sst_id) if kind == "ssts" else wal_key(PATH, WalId(number + 1))

    tracemalloc.start()
    listing = Listing(PATH)
    collections.deque((listing.add(page) for page in pages(map(meta, keys()))), maxlen=0)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(listing.ssts) + len(listing.wal) == OBJECTS
    assert used < OBJECTS * PER_OBJECT_BYTES


def test_packed_objects_are_those_that_were_listed() -> None:
    rng = random.Random(5)
    ids = sorted(Ulid(rng.getrandbits(128)) for _ in range(50))
    listing = Listing(PATH)
    assert (len(listing.ssts), list(listing.wal)) == (0, [])
    listing.ssts.sort()
    shuffled = rng.sample(ids, len(ids))
    listing.add([meta(sst_key(PATH, sst_id), sst_id % 1000) for sst_id in shuffled])
    listing.ssts.sort()
    assert list(listing.ssts) == [ListedSst(sst_id, sst_id % 1000) for sst_id in ids]
    assert (listing.ssts[-1].id, listing.ssts[1:3]) == (ids[-1], tuple(listing.ssts)[1:3])
    assert type(listing.ssts[0].id) is Ulid
    listing.add([meta(wal_key(PATH, WalId(wal_id)), wal_id % 2) for wal_id in (2**64 - 1, 1, 30)])
    listing.wal.sort()
    assert list(listing.wal) == [WalFile(WalId(each), each % 2, T0_MS) for each in (1, 30, 2**64 - 1)]
    with pytest.raises(IndexError):
        listing.wal[3]


def test_strays_are_counted_and_a_dangerous_name_is_seen_among_them() -> None:
    async def scenario() -> None:
        harness = await Harness.build()
        for number in range(STRAYS_MAX + 50):
            await harness.store.put(f"{PATH}/another/{number}", b"xyz")
        for number in range(3):
            await harness.store.put(f"{PATH}/wal/x#{number}", b"ab")
        dangerous = f"{manifest_prefix(PATH)}7.manifest"
        await harness.store.put(dangerous, b"")
        report = await harness.verify()
        assert [(each.object, each.code) for each in report.findings] == [(dangerous, Code.FOREIGN_NAME)]
        totals = {reason[:19]: (total.objects, total.bytes) for reason, total in report.orphan_totals.items()}
        assert totals["its name is unknown"] == (STRAYS_MAX + 51, 3 * (STRAYS_MAX + 50))
        assert totals["it is a staging fil"] == (3, 6)

    anyio.run(scenario)


def test_objects_that_a_lost_version_may_need_are_no_orphans() -> None:
    """A list of orphans that includes them would lead an operator to delete objects that a repair needs."""

    async def scenario() -> None:
        harness = await Harness.build()
        old = await harness.sst(b"k", OLD_MS - 5)
        before = {each.object: each for each in (await harness.verify()).orphans}
        assert before[sst_key(PATH, old.id)].made_ms is not None
        lost = (await harness.latest())[1].checkpoints[0].manifest_id
        await harness.gone(harness.manifests().namespace.key(lost))
        report = await harness.verify()
        assert {each.code for each in report.findings} == {Code.CHECKPOINT_LOST}
        assert {each.object for each in report.orphans} >= set(before)
        for orphan in report.orphans:
            assert (orphan.made_ms, orphan.kept_by) == (None, "a checkpoint whose manifest cannot be read")

    anyio.run(scenario)


def of(code: Code, number: int) -> Finding:
    return Finding(f"db/{number}", "what", None, code)


def test_warnings_never_push_an_error_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_module, "FINDINGS_MAX", 10)
    found = Findings()
    found += [of(Code.STATS, number) for number in range(25)]
    found += [of(Code.CHECKSUM, number) for number in range(13)]
    assert (len(found.listed), found.left_out) == (20, 18)
    assert {each.severity for each in worst_first(found.listed)[:10]} == {Severity.ERROR}
    few = [of(Code.STATS, 1), of(Code.CHECKSUM, 2)]
    assert worst_first(few) == few


class Holed(MemoryStore):
    """A store that lists every second file of a long WAL."""

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        async for page in super().list_pages(prefix, after=after):
            yield list(page)
        if prefix == f"{PATH}/":
            for page in pages(meta(wal_key(PATH, WalId(100 + 2 * each)), 0) for each in range(5 * HOLES_MAX)):
                yield page


def test_very_many_holes_are_not_looked_at_one_by_one() -> None:
    async def scenario() -> None:
        harness = await Harness.build()
        holed = Holed()
        holed.objects.update(harness.store.objects)
        harness.store = holed
        report = await harness.verify()
        assert {each.code for each in report.findings} == {Code.WAL_MISSING}
        assert len(report.findings) == HOLES_MAX
        assert report.findings_left_out > 3 * HOLES_MAX
        assert not report.is_sound

    anyio.run(scenario)
