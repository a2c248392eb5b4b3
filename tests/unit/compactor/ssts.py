"""Real SSTs in a store, and what is in them."""

from collections.abc import Sequence

from shale.env import Env
from shale.format.names import sst_key
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.types import FLAG_TOMBSTONE, Entry, SortedRun, Sst, SstView, Ulid


def put(key: bytes, seq: int, value: bytes = b"v") -> Entry:
    return Entry(key, value, seq, 0)


def delete(key: bytes, seq: int) -> Entry:
    return Entry(key, b"", seq, FLAG_TOMBSTONE)


async def write_sst(store: ObjectStore, root: str, sst_id: Ulid, entries: Sequence[Entry], **options: int) -> Sst:
    """Store an SST of entries, which are sorted here."""
    ordered = sorted(entries, key=lambda entry: (entry.key, -entry.seq))
    data, info = build_sst(rows_from_entries(ordered), SstOptions(**options))  # type: ignore[arg-type]
    await store.put(sst_key(root, sst_id), data)
    return Sst(id=sst_id, info=info)


async def write_view(store: ObjectStore, root: str, sst_id: Ulid, entries: Sequence[Entry], **options: int) -> SstView:
    return SstView.identity(await write_sst(store, root, sst_id, entries, **options))


async def read_ssts(store: ObjectStore, root: str, env: Env, ssts: Sequence[Sst]) -> list[Entry]:
    """All entries of some SSTs, one SST after the other."""
    reader = SstReader(store, SstPaths(root), BlockCache(), env)
    entries: list[Entry] = []
    for sst in ssts:
        block_count = len((await reader.meta(sst)).index)
        entries += entries_from_rows(await reader.blocks(sst, 0, block_count))
    return entries


async def read_run(store: ObjectStore, root: str, env: Env, run: SortedRun) -> list[Entry]:
    return await read_ssts(store, root, env, [view.sst for view in run.ssts])
