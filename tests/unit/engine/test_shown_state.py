"""``repr`` of handles, also as tables in a notebook: the state, from memory, without an error."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

import shale
from shale import sync
from shale.core.state_repr import ShowsState
from shale.store.memory import MemoryStore
from tests.unit.engine.reading import RangeRecordingStore


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def html(handle: ShowsState) -> str:
    """Return what a notebook shows."""
    return handle._repr_html_()


def test_a_database_shows_its_place_and_its_state() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await shale.Db.open("teams/orders", store=store, flush_interval=0)
        await (await db.put(b"k", b"v")).durable()
        shown = repr(db)
        assert shown.startswith(
            "<shale.Db database=memory:///teams/orders state=open epoch=1 last_seq=1 durable_seq=1 "
        )
        assert shown.endswith(" l0_ssts=0 sorted_runs=0 checkpoints=1>")
        other = await shale.Db.open("teams/orders", store=store)
        with pytest.raises(shale.FencedError):
            await db.refresh()
        assert " state=failed: writer epoch 1 was superseded by 2" in repr(db)
        await other.close()
        assert " state=closed " in repr(other)

    run(scenario)


def test_reads_show_what_they_see() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, flush_interval=0) as db:
            await (await db.put(b"k", b"v")).durable()
            async with db.snapshot() as snapshot:
                assert repr(snapshot) == "<shale.Snapshot state=open seq=1 database=db>"
            assert repr(snapshot) == "<shale.Snapshot state=closed seq=1 database=db>"
            async with db.transaction("serializable") as tx:
                await tx.put(b"a", b"")
                assert repr(tx) == (
                    "<shale.Transaction state=open isolation=serializable seq=1 keys_written=1 database=db>"
                )
            assert "state=over" in repr(tx)
            await db.flush("wal")
            async with shale.DbReader.open("db", store=store) as reader:
                assert repr(reader).startswith("<shale.DbReader database=memory:///db state=open mode=managed ")
                assert "visible_seq=2" in repr(reader)
            assert "state=closed" in repr(reader)
            scan = db.scan(prefix=b"k", reverse=True)
            await anext(scan)
            assert "reverse=True" in repr(scan)
            assert "last_key=b'k'" in repr(scan)
            assert repr(db.scan_prefix_by_recency(b"k")) == "<shale.RecencyScan prefix=b'k' reverse=False>"
        assert repr(shale.Admin("db", store=store)) == "<shale.Admin database=memory:///db state=not entered>"

    run(scenario)


def test_blocking_handles_show_the_same() -> None:
    with sync.Db.open("db", store=MemoryStore()) as db, db.transaction() as tx:
        assert repr(db).startswith("<shale.sync.Db database=memory:///db state=open epoch=1 ")
        assert repr(tx).startswith("<shale.sync.Transaction state=open ")
        assert repr(db.scan()).startswith("<shale.sync.Scan range=")
        assert repr(db.put(b"k", b"v")).startswith("WriteHandle(seq=1")
    assert "state=closed" in repr(db)


def test_nothing_is_read_from_the_store() -> None:
    async def scenario() -> None:
        store = RangeRecordingStore()
        async with shale.Db.open("db", store=store) as db, shale.DbReader.open("db", store=store) as reader:
            before = len(store.reads)
            for handle in (db, reader, db.scan()):
                assert repr(handle)
                assert html(handle)
            assert len(store.reads) == before

    anyio.run(scenario)


class Hostile(ShowsState):
    """A handle with the state of the test."""

    def __init__(self, **state: object) -> None:
        self.state = state

    def _shown_state(self) -> dict[str, object]:
        return self.state


class Broken(ShowsState):
    """A handle that is half open."""

    def _shown_state(self) -> dict[str, object]:
        raise AttributeError

    def __len__(self) -> int:
        raise AssertionError


def test_html_is_escaped() -> None:
    shown = html(Hostile(**{"<b>": "<script>alert('x')</script>"}))
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<b>" not in shown


def test_it_never_raises() -> None:
    assert repr(Broken()) == "<shale.Broken state=unknown: AttributeError>"
    assert "unknown: AttributeError" in html(Broken())

    class Worse:
        def __repr__(self) -> str:
            raise RuntimeError

    assert repr(Hostile(value=Worse())) == "<shale.Hostile value=unknown: RuntimeError>"
