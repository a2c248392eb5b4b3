"""Databases for tests of ``shale.compat.slatedb``: in memory, without background work."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from shale.compat.slatedb import uniffi as slatedb

PATH = "db"
EVERYTHING = slatedb.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=True)
TO_L0 = slatedb.FlushOptions(flush_type=slatedb.FlushType.MEM_TABLE)
TO_WAL = slatedb.FlushOptions(flush_type=slatedb.FlushType.WAL)


class Concatenate(slatedb.MergeOperator):
    """A merge operator that joins operands and rejects one of them."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        if operand == b"refused":
            raise slatedb.MergeOperatorCallbackError.Failed("not this one")
        return (existing_value or b"") + operand


def memory() -> slatedb.ObjectStore:
    """Return a new store in memory."""
    return slatedb.ObjectStore.resolve("memory:///")


def settings(**changed: Any) -> slatedb.Settings:
    """Return settings without compactor and collector, unless they are given."""
    made = slatedb.Settings.default()
    for key, value in {"compactor_options": None, "garbage_collector_options": None, **changed}.items():
        made.set(key, json.dumps(value))
    return made


@asynccontextmanager
async def _shut_down_at_the_end(handle: slatedb.Db | slatedb.DbReader) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if handle.status().close_reason is None:
            await handle.shutdown()


@asynccontextmanager
async def opened(
    store: slatedb.ObjectStore, configure: Callable[[slatedb.DbBuilder], None] | None = None, **changed: Any
) -> AsyncIterator[slatedb.Db]:
    """Open a writer, and close it at the end unless the test has closed it."""
    builder = slatedb.DbBuilder(PATH, store)
    builder.with_settings(settings(**changed))
    if configure is not None:
        configure(builder)
    db = await builder.build()
    async with _shut_down_at_the_end(db):
        yield db


@asynccontextmanager
async def opened_reader(
    store: slatedb.ObjectStore, configure: Callable[[slatedb.DbReaderBuilder], None] | None = None
) -> AsyncIterator[slatedb.DbReader]:
    """Open a reader, and close it at the end unless the test has closed it."""
    builder = slatedb.DbReaderBuilder(PATH, store)
    if configure is not None:
        configure(builder)
    reader = await builder.build()
    async with _shut_down_at_the_end(reader):
        yield reader


def merging(builder: Any) -> None:
    """Open a writer with a merge operator."""
    builder.with_merge_operator(Concatenate())
