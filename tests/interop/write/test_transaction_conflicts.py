"""A key that is absent, then written and deleted is absent again; both packages call that a conflict."""

import asyncio
from typing import Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours

RELYING = ("put", "mark", "get", "scan")


async def outcome(api: Any, relying: str, isolation: str, *, flushed: bool) -> str:
    """Return the outcome of a transaction that read the absence of a key."""
    db = await api.DbBuilder("db", api.ObjectStore.resolve("memory:///")).build()
    transaction = await db.begin(getattr(api.IsolationLevel, isolation))
    match relying:
        case "put":
            await transaction.put(b"k", b"1")
        case "mark":
            await transaction.mark_read([b"k"])
        case "get":
            assert await transaction.get(b"k") is None
        case _:
            keys = api.KeyRange(start=b"a", start_inclusive=True, end=b"m", end_inclusive=False)
            assert await (await transaction.scan(keys)).next() is None
    await transaction.put(b"other", b"1")
    await db.put(b"k", b"2")
    await db.delete(b"k")
    if flushed:
        await db.flush_with_options(api.FlushOptions(flush_type=api.FlushType.MEM_TABLE))
    try:
        assert await transaction.commit() is not None
    except api.Error as error:
        return f"Error.{type(error).__name__}"
    else:
        return "committed"
    finally:
        await db.shutdown()


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE_SNAPSHOT"])
@pytest.mark.parametrize("relying", RELYING)
@pytest.mark.parametrize("flushed", [False, True])
def test_a_key_that_came_and_went_is_a_conflict(relying: str, isolation: str, flushed: bool) -> None:
    theirs, mine = (asyncio.run(outcome(api, relying, isolation, flushed=flushed)) for api in (wheel, ours))
    is_relied_on = relying in ("put", "mark") or isolation == "SERIALIZABLE_SNAPSHOT"
    assert theirs == mine == ("Error.Transaction" if is_relied_on else "committed")
