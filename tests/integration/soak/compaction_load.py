"""A database that needs many compactions, written by Shale and checked row by row with both libraries.

Every row has a number, from which its key and its value follow, so that each row can be checked without a model in
memory.  Keys come in no order, so that all L0s overlap, and some rows are written twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from slatedb import uniffi as slate

import shale
from tests.interop.slatedb_databases import EVERYTHING, Shape, open_folder, opened

VALUE_BYTES = 4000
ROW_BYTES = VALUE_BYTES + 16
ROWS_PER_BATCH = 250
REWRITTEN_EACH = 16
_FAR_AHEAD = slate.ScanOptions(
    durability_filter=slate.DurabilityLevel.MEMORY,
    dirty=False,
    read_ahead_bytes=8 << 20,
    cache_blocks=False,
    max_fetch_tasks=2,
    order=None,
    filter_context=None,
    tracing_options=None,
)
"""By default SlateDB asks for one block at a time, and a block here holds one row."""
_KEY_STEP = 0x9E3779B97F4A7C15
"""Odd, so that multiplication by it is a permutation: each key once, in no order."""


@dataclass(frozen=True, slots=True)
class Load:
    """The number of rows and of L0s."""

    rows: int
    l0s: int = 32

    def versions(self, flush: int) -> Iterator[tuple[int, bool]]:
        """Yield the rows of one L0 as (number, is rewritten): new rows, and second versions of older ones."""
        share = -(-self.rows // (self.l0s - 1))
        yield from ((number, False) for number in range(flush * share, min(self.rows, (flush + 1) * share)))
        before = range(max(0, flush - 1) * share, min(self.rows, flush * share))
        yield from ((number, True) for number in before if is_rewritten(number))


def key_of(number: int) -> bytes:
    """Return a key of 16 bytes."""
    return b"%016x" % (number * _KEY_STEP & (1 << 64) - 1)


def check(key: bytes, value: bytes) -> None:
    """Return whether this is a row in its last version."""
    number = int(value[1:10])
    assert key == key_of(number)
    assert value == value_of(number, is_rewritten(number))


def is_rewritten(number: int) -> bool:
    """Return whether a row has a second version."""
    return number % REWRITTEN_EACH == 0


def value_of(number: int, is_second: bool) -> bytes:
    """Return a value that names its row and its version."""
    return (b"%c%09d" % (b"ab"[is_second], number)) * (VALUE_BYTES // 10)


def rust_store(url: str, environment: dict[str, str]) -> Any:
    """Open the object store at ``url`` for SlateDB."""
    if url.startswith("file://"):
        folder = Path(url.removeprefix("file://"))
        folder.mkdir(exist_ok=True)
        return open_folder(folder)
    builder = slate.ObjectStoreBuilder.from_url(url)
    for name, value in environment.items():
        builder.with_config(name.lower(), value)
    return builder.build()


async def write(url: str, load: Load) -> None:
    """Create the database; all rows are in L0s and nothing has been compacted."""
    settings: dict[str, Any] = {"wal_enabled": False, "l0_max_ssts": 1000, "l0_max_ssts_per_key": 1000}
    async with shale.Db.open(url, l0_sst_size_bytes=1 << 30, max_unflushed_bytes=2 << 30, **settings) as db:
        for number in range(load.l0s):
            versions = load.versions(number)
            while rows := list(islice(versions, ROWS_PER_BATCH)):
                async with db.batch() as batch:
                    for row, is_second in rows:
                        batch.put(key_of(row), value_of(row, is_second))
            await db.flush("memtable")


async def check_with_slatedb(store: Any, root: str, load: Load) -> None:
    """Check with SlateDB that each row exists once, in its last version."""
    async with opened(store, root, Shape({"garbage_collector_options": None})) as db:
        count, previous = 0, b""
        iterator = await db.scan_with_options(EVERYTHING, _FAR_AHEAD)
        while (row := await iterator.next()) is not None:
            assert previous < row.key
            previous = bytes(row.key)
            check(previous, bytes(row.value))
            count += 1
    assert count == load.rows


async def check_with_shale(url: str, load: Load) -> None:
    """Check with Shale's reader that each row exists once, in its last version."""
    count, previous = 0, b""
    async with shale.DbReader.open(url) as reader:
        async for rows in reader.scan().batches(10_000):
            assert previous < rows[0].key
            assert all(left.key < right.key for left, right in pairwise(rows))
            previous = rows[-1].key
            for row in rows:
                check(row.key, row.value)
            count += len(rows)
    assert count == load.rows
