"""Small databases in memory, and their rows."""

import random
from collections.abc import Mapping

import shale
from shale.env import Env, InlineCpu
from shale.store.memory import MemoryStore
from tests.clocks import ManualClock

NOW_MS = 1_800_000_000_000


def environment(seed: int = 1, ms: int = NOW_MS) -> Env:
    """Return an environment whose time stands still."""
    return Env(ManualClock(ms=ms), random.Random(seed), InlineCpu())


async def write(
    store: MemoryStore, rows: Mapping[str, str], path: str = "db", *, flush: str = "memtable", **options: object
) -> int:
    """Write rows; return the newest sequence number.  ``flush``: how the writer closes, ``memtable`` or ``wal``."""
    db = await shale.Db.open(path, store=store, **options)  # type: ignore[arg-type]
    last = 0
    for key, value in rows.items():
        last = (await db.put(key.encode(), value.encode())).seq
    await db.close(flush=flush)  # type: ignore[arg-type]
    return last


async def rows(store: object, path: str = "db", **options: object) -> dict[str, str]:
    """Return the rows of a database, also those of its WAL."""
    async with shale.DbReader.open(path, store=store, **options) as reader:  # type: ignore[arg-type]
        return {row.key.decode(): row.value.decode() async for row in reader.scan()}


def admin(store: object, path: str = "db", **options: object) -> shale.Admin:
    """Return the administration of a database."""
    return shale.Admin(path, store=store, **options)  # type: ignore[arg-type]


def copied(store: MemoryStore) -> MemoryStore:
    """Return a store with the same objects."""
    made = MemoryStore(url=store.url)
    made.objects.update(store.objects)
    return made
