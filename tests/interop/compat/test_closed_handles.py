"""Calls on closed handles, and administrators of missing objects: both packages raise the same kind of error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours
from tests.interop.compat.programs import Harness, Side, memory_store

Calls = dict[str, Callable[[], Awaitable[Any]]]
NOWHERE = "ffffffff-ffff-ffff-ffff-ffffffffffff"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

DIFFERENT = {"fenced: commit of nothing", "closed reader: next"}
"""What docs/how-to/migrate-from-slatedb.md tells of."""


async def kind_of(api: Any, call: Callable[[], Awaitable[Any]]) -> str:
    """Return the kind of the outcome of a call, without the value."""
    try:
        return type(await call()).__name__
    except api.Error as error:
        return f"Error.{type(error).__name__} {getattr(getattr(error, 'reason', None), 'name', '')}"


def everything(api: Any) -> Any:
    return api.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=True)


async def ends(api: Any) -> dict[str, str]:
    """Return the outcomes of a fenced writer, a closed writer and a reader."""
    store = memory_store(api, None)  # type: ignore[arg-type]
    first, second = Side(api, store, Harness()), Side(api, store, Harness())
    await first.open()
    old = first.db
    await old.put(b"a", b"1")
    await old.flush()
    snapshot, scan = await old.snapshot(), await old.scan(everything(api))
    transaction = await old.begin(api.IsolationLevel.SNAPSHOT)
    lost = await old.put(b"b", b"1")
    await second.open()
    told = {"fenced: durable": await kind_of(api, lambda: _flushed(old, lost))}
    calls: Calls = {
        "fenced: put": lambda: old.put(b"c", b"1"),
        "fenced: get": lambda: old.get(b"a"),
        "fenced: snapshot get": lambda: snapshot.get(b"a"),
        "fenced: transaction get": lambda: transaction.get(b"a"),
        "fenced: commit of nothing": transaction.commit,
        "fenced: next": scan.next,
        "fenced: flush": old.flush,
        "fenced: begin": lambda: old.begin(api.IsolationLevel.SNAPSHOT),
        "fenced: scan": lambda: old.scan(everything(api)),
        "fenced: shutdown": old.shutdown,
        "fenced: shutdown again": old.shutdown,
        "fenced: put after shutdown": lambda: old.put(b"c", b"1"),
    }
    for name, call in calls.items():
        told[name] = await kind_of(api, call)
    told["fenced: status"] = old.status().close_reason.name
    return told | await _closed(api, second.db) | await _lost(api, second) | await _closed_reader(api, store)


async def _flushed(db: Any, handle: Any) -> None:
    await db.flush()
    await handle.await_durable()


async def _closed(api: Any, db: Any) -> dict[str, str]:
    transaction, snapshot = await db.begin(api.IsolationLevel.SNAPSHOT), await db.snapshot()
    await transaction.put(b"q", b"1")
    scan, handle = await db.scan(everything(api)), await db.put(b"z", b"1")
    await db.shutdown()
    sst = api.SsTableId(value=ULID)
    calls: Calls = {
        "closed: commit": transaction.commit,
        "closed: commit again": transaction.commit,
        "closed: next": scan.next,
        "closed: durable": handle.await_durable,
        "closed: snapshot get": lambda: snapshot.get(b"a"),
        "closed: evict": lambda: db.evict_cached_sst(sst),
        "closed: warm": lambda: db.warm_sst(sst, [api.CacheTarget.INDEX()]),
        "closed: flush cache": db.flush_cache_to_disk,
        "closed: shutdown": db.shutdown,
    }
    return {name: await kind_of(api, call) for name, call in calls.items()}


async def _lost(api: Any, side: Side) -> dict[str, str]:
    await side.open()
    handle = await side.db.put(b"z", b"1")
    await side.close(None)
    return {"closed without flushing: durable": await kind_of(api, handle.await_durable)}


async def _closed_reader(api: Any, store: Any) -> dict[str, str]:
    reader = await api.DbReaderBuilder("side/by/side", store).build()
    scan = await reader.scan(everything(api))
    await reader.shutdown()
    calls: Calls = {
        "closed reader: get": lambda: reader.get(b"a"),
        "closed reader: scan": lambda: reader.scan(everything(api)),
        "closed reader: next": scan.next,
        "closed reader: shutdown": reader.shutdown,
    }
    return {name: await kind_of(api, call) for name, call in calls.items()}


async def administered(api: Any, *, is_there: bool) -> dict[str, str]:
    """Return the outcomes of an administrator of no database, or of one without checkpoints."""
    store = memory_store(api, None)  # type: ignore[arg-type]
    if is_there:
        side = Side(api, store, Harness())
        await side.open()
        await side.close("MEM_TABLE")
    admin = api.AdminBuilder("side/by/side", store).build()
    options = api.CheckpointOptions(lifetime_ms=None, source=None, name=None)
    copy = api.CheckpointOptions(lifetime_ms=5, source=NOWHERE, name=None)
    calls: Calls = {
        "manifest": lambda: admin.read_manifest(None),
        "first manifest": lambda: admin.read_manifest(1),
        "manifests": lambda: admin.list_manifests(None, None),
        "compactions": lambda: admin.read_compactions(None),
        "compaction": lambda: admin.read_compaction(ULID, None),
        "bad compaction": lambda: admin.read_compaction("x", None),
        "checkpoints": lambda: admin.list_checkpoints(None),
        "refresh": lambda: admin.refresh_checkpoint(NOWHERE, 5),
        "bad refresh": lambda: admin.refresh_checkpoint("x", 5),
        "delete": lambda: admin.delete_checkpoint(NOWHERE),
        "copy": lambda: admin.create_detached_checkpoint(copy),
        "create": lambda: admin.create_detached_checkpoint(options),
        "second": lambda: admin.get_timestamp_for_sequence(1, True),
        "sequence": lambda: admin.get_sequence_for_timestamp(1, False),
        "bad second": lambda: admin.get_sequence_for_timestamp(2**62, False),
        "state": admin.read_compactor_state_view,
        "collection": lambda: admin.run_gc_once(None),
    }
    return {name: await kind_of(api, call) for name, call in calls.items()}


def test_handles_end_alike() -> None:
    theirs, mine = (asyncio.run(ends(api)) for api in (wheel, ours))
    differing = {name for name in theirs if theirs[name] != mine[name]}
    assert differing == DIFFERENT, {name: (theirs[name], mine[name]) for name in differing}


@pytest.mark.parametrize("is_there", [False, True])
def test_administrators_get_the_same_answers(is_there: bool) -> None:
    theirs, mine = (asyncio.run(administered(api, is_there=is_there)) for api in (wheel, ours))
    assert mine == theirs
