"""Backups of databases with a WAL store, a WAL backend, a parallel WAL, segments, encryption and two-phase creates.

Each kind goes through the same story: a backup, an incremental one, a check of every row, restores of both, into an
empty path, to a sequence number and in place, and a prune.
"""

from collections.abc import Callable
from typing import Any

import pytest

import shale
from shale.backup.document import ObjectKind
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.testing.wal_backends import MemoryWalBackend
from tests.unit.backup.databases import admin, rows, write
from tests.unit.store.two_phase.plain_store import Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Site:
    """The stores of a kind of database, and the options that its processes take.

    Args:
        store: makes an empty store of this kind.
        options: makes the options of the processes of a database; a new WAL store for each call.
        write: options of writers only.
    """

    def __init__(
        self,
        store: Callable[[], ObjectStore] = MemoryStore,
        options: Callable[[], dict[str, Any]] = dict,
        write: dict[str, Any] | None = None,
    ) -> None:
        self.store, self.options, self.write = store, options, write or {}


def two_phase() -> ObjectStore:
    return Place().process()


KEYS = shale.AesGcm({"2026-11": b"k" * 32})
SITES = {
    "plain": Site(),
    "segments": Site(write={"segment_extractor": FixedPrefix("two", 2)}),
    "parallel WAL": Site(write={"max_parallel_writes": 3}),
    "encrypted": Site(options=lambda: {"block_transformer": KEYS}),
    "WAL store": Site(options=lambda: {"wal_store": MemoryStore()}),
    "WAL backend": Site(options=lambda: {"wal": MemoryWalBackend()}),
    "encrypted WAL backend": Site(options=lambda: {"wal": MemoryWalBackend(), "block_transformer": KEYS}),
    "two-phase": Site(two_phase),
}


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> Site:
    return SITES[request.param]


async def test_a_database_of_each_kind_is_backed_up_restored_and_pruned(site: Site) -> None:
    store, backups, options = site.store(), MemoryStore(url="memory://backups/"), site.options()
    writing = {**options, **site.write}
    await write(store, {"aa1": "1", "bb1": "1"}, **writing)
    await write(store, {"aa2": "wal"}, flush="wal", **writing)
    async with admin(store, **options) as made:
        place = made.backups(store=backups, path="b")
        first = await place.create()
        assert await rows(store, **options) == {"aa1": "1", "bb1": "1", "aa2": "wal"}
        middle = await write(store, {"cc1": "2"}, flush="wal", **writing)
        await write(store, {"cc1": "3"}, **writing)
        second = await place.create(keep_wal=True)
        known = {each.key for each in first.of_kind(ObjectKind.SST)}
        assert known < {each.key for each in second.of_kind(ObjectKind.SST)}
        for backup, count in ((first, 3), (second, 4)):
            report = await place.verify(backup.id, deep=True)
            assert (report.findings, report.depth, report.rows is not None and report.rows >= count) == (
                (),
                "deep",
                True,
            )
    for backup_id, seq, expected in (
        (first.id, None, {"aa1": "1", "bb1": "1", "aa2": "wal"}),
        (first.id, middle, {"aa1": "1", "bb1": "1", "aa2": "wal", "cc1": "2"}),
        (second.id, None, {"aa1": "1", "bb1": "1", "aa2": "wal", "cc1": "3"}),
    ):
        other, other_options = site.store(), site.options()
        async with admin(other, **other_options) as made:
            await made.backups(store=backups, path="b").restore(backup_id, to_seq=seq)
            assert (await made.verify(deep=True)).findings == ()
        assert await rows(other, **other_options) == expected
        await write(other, {"dd1": "later"}, **{**other_options, **site.write})
        assert await rows(other, **other_options) == {**expected, "dd1": "later"}
    async with admin(store, **options) as made:
        pruned = await made.backups(store=backups, path="b").prune(keep=1)
        assert [each.id for each in pruned.removed] == [first.id]
        assert (await made.backups(store=backups, path="b").verify(second.id, deep=True)).findings == ()


async def test_a_database_of_each_kind_is_replaced_and_its_state_before_returns(site: Site) -> None:
    store, backups, options = site.store(), MemoryStore(url="memory://backups/"), site.options()
    writing = {**options, **site.write}
    await write(store, {"aa1": "1"}, **writing)
    await write(store, {"aa2": "wal"}, flush="wal", **writing)
    async with admin(store, **options) as made:
        place = made.backups(store=backups, path="b")
        await place.create()
        await write(store, {"aa1": "wrong", "ww1": "flushed"}, **writing)
        await write(store, {"ww2": "in the WAL"}, flush="wal", **writing)
        wrong = await rows(store, **options)
        if site.write.get("max_parallel_writes"):
            with pytest.raises(shale.ShaleError, match="parallel WAL"):
                await place.restore(in_place=True)
            return
        result = await place.restore(in_place=True)
        assert await rows(store, **options) == {"aa1": "1", "aa2": "wal"}
        await made.gc.run_once()
    async with admin(store, "undone", **options) as made:
        await made.clones.create(shale.admin.clones.source("db", checkpoint=result.undo_checkpoint))
    assert await rows(store, "undone", **options) == wrong
    await write(store, {"aa3": "later"}, **writing)
    assert await rows(store, **options) == {"aa1": "1", "aa2": "wal", "aa3": "later"}
    async with admin(store, **options) as made:
        assert (await made.verify(deep=True)).findings == ()
