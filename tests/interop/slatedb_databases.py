"""Databases that the released ``slatedb`` package writes during the test, in shapes that the golden files lack."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slatedb import uniffi as slate

EVERYTHING = slate.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)


def open_folder(folder: Path) -> Any:
    """Open a local folder as SlateDB's object store."""
    os.environ["CLOUD_PROVIDER"] = "local"
    os.environ["LOCAL_PATH"] = str(folder)
    return slate.ObjectStore.from_env(None)


@dataclass(frozen=True)
class Shape:
    """Options to open a database: settings as JSON values, and arguments of the builder."""

    settings: Mapping[str, object] = field(default_factory=dict)
    block_size: Any = None
    filter_policies: Callable[[], Sequence[Any]] | None = None
    extractor: Any = None
    merge_operator: Any = None


class Concatenate(slate.MergeOperator):
    """The merge operator of the golden files."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        return (existing_value or b"") + operand


class FirstBytes(slate.PrefixExtractor):
    """A prefix extractor: the first ``length`` bytes of keys that are long enough."""

    def __init__(self, name: str, length: int) -> None:
        self._name = name
        self._length = length

    def name(self) -> str:
        return self._name

    def prefix_len(self, target: Any) -> int | None:
        data = target.key if target.is_point() else target.prefix
        return self._length if len(data) >= self._length else None


@asynccontextmanager
async def opened(store: Any, root: str, shape: Shape) -> AsyncIterator[Any]:
    """Open a database; rows in the memtable stay in the WAL at the end."""
    settings = slate.Settings.default()
    for key, value in {"compactor_options": None, "flush_interval": "600s", **shape.settings}.items():
        settings.set(key, json.dumps(value))
    builder = slate.DbBuilder(root, store)
    builder.with_settings(settings)
    if shape.block_size is not None:
        builder.with_sst_block_size(shape.block_size)
    if shape.filter_policies is not None:
        builder.with_filter_policies(list(shape.filter_policies()))
    if shape.extractor is not None:
        builder.with_segment_extractor(shape.extractor)
    if shape.merge_operator is not None:
        builder.with_merge_operator(shape.merge_operator)
    db = await builder.build()
    try:
        yield db
    finally:
        await db.shutdown_with_options(slate.CloseOptions(flush_type=slate.FlushType.WAL))


async def flush(db: Any) -> None:
    """Flush the WAL, then the memtable to L0, so that the manifest covers the whole WAL."""
    await flush_wal(db)
    await db.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE))


async def flush_wal(db: Any) -> None:
    """Flush the WAL buffer to a WAL file."""
    await db.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.WAL))


async def put_all(db: Any, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
    """Write one batch; ``None`` deletes."""
    batch = slate.WriteBatch()
    for key, value in rows:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    await db.write(batch)


async def scanned(db: Any) -> list[tuple[bytes, bytes, int, int | None, int | None]]:
    """Return all live rows with sequence numbers and times."""
    rows = []
    iterator = await db.scan(EVERYTHING)
    while (row := await iterator.next()) is not None:
        rows.append((bytes(row.key), bytes(row.value), row.seq, row.create_ts, row.expire_ts))
    return rows


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Wait until another process has done its work."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # another process has no event to wait for
