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
    """Joins operands; one of them cannot be joined."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        if operand == b"refused":
            raise slatedb.MergeOperatorCallbackError.Failed("not this one")
        return (existing_value or b"") + operand


def memory() -> slatedb.ObjectStore:
    """A store of its own."""
    return slatedb.ObjectStore.resolve("memory:///")


def settings(**changed: Any) -> slatedb.Settings:
    """Without compactor and collector, unless they are given."""
    made = slatedb.Settings.default()
    for key, value in {"compactor_options": None, "garbage_collector_options": None, **changed}.items():
        made.set(key, json.dumps(value))
    return made


@asynccontextmanager
async def opened(
    store: slatedb.ObjectStore, configure: Callable[[slatedb.DbBuilder], None] | None = None, **changed: Any
) -> AsyncIterator[slatedb.Db]:
    """A writer, closed at the end unless the test did."""
    builder = slatedb.DbBuilder(PATH, store)
    builder.with_settings(settings(**changed))
    if configure is not None:
        configure(builder)
    db = await builder.build()
    try:
        yield db
    finally:
        if db.status().close_reason is None:
            await db.shutdown()


@asynccontextmanager
async def opened_reader(
    store: slatedb.ObjectStore, configure: Callable[[slatedb.DbReaderBuilder], None] | None = None
) -> AsyncIterator[slatedb.DbReader]:
    """A reader, closed at the end unless the test did."""
    builder = slatedb.DbReaderBuilder(PATH, store)
    if configure is not None:
        configure(builder)
    reader = await builder.build()
    try:
        yield reader
    finally:
        if reader.status().close_reason is None:
            await reader.shutdown()


def merging(builder: Any) -> None:
    """With a merge operator."""
    builder.with_merge_operator(Concatenate())
