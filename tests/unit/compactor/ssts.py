"""Writes real SSTs to a store and reads their rows."""

import itertools
from collections.abc import Sequence

from shale.env import Env
from shale.format.blocks.section import seal_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.names import sst_key
from shale.format.sst.index import BlockIndex, encode_index
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.types import FLAG_TOMBSTONE, Compression, Entry, SortedRun, Sst, SstInfo, SstView, Ulid
from tests.unit.kernels.blocks_v1 import encode_block_v1


def put(key: bytes, seq: int, value: bytes = b"v") -> Entry:
    return Entry(key, value, seq, 0)


def delete(key: bytes, seq: int) -> Entry:
    return Entry(key, b"", seq, FLAG_TOMBSTONE)


async def write_sst(store: ObjectStore, root: str, sst_id: Ulid, entries: Sequence[Entry], **options: object) -> Sst:
    """Sort entries and store them as an SST."""
    ordered = sorted(entries, key=lambda entry: (entry.key, -entry.seq))
    data, info = build_sst(rows_from_entries(ordered), SstOptions(**options))  # type: ignore[arg-type]
    await store.put(sst_key(root, sst_id), data)
    return Sst(id=sst_id, info=info)


async def write_view(
    store: ObjectStore, root: str, sst_id: Ulid, entries: Sequence[Entry], **options: object
) -> SstView:
    return SstView.identity(await write_sst(store, root, sst_id, entries, **options))


async def read_ssts(
    store: ObjectStore, root: str, env: Env, ssts: Sequence[Sst], transformer: BlockTransformer | None = None
) -> list[Entry]:
    """Return all entries of some SSTs, one SST after the other."""
    reader = SstReader(store, SstPaths(root), BlockCache(), env, transformer=transformer)
    entries: list[Entry] = []
    for sst in ssts:
        block_count = len((await reader.meta(sst)).index)
        entries += entries_from_rows(await reader.rows(sst, 0, block_count))
    return entries


async def read_run(store: ObjectStore, root: str, env: Env, run: SortedRun) -> list[Entry]:
    return await read_ssts(store, root, env, [view.sst for view in run.ssts])


async def write_sst_v1(
    store: ObjectStore, root: str, sst_id: Ulid, entries: Sequence[Entry], rows_per_block: int
) -> Sst:
    """Store an SST with blocks of format version 1, which old releases of SlateDB wrote."""
    ordered = sorted(entries, key=lambda entry: (entry.key, -entry.seq))
    groups = [ordered[start : start + rows_per_block] for start in range(0, len(ordered), rows_per_block)]
    blocks = [seal_section(encode_block_v1(group), Compression.NONE) for group in groups]
    ends = list(itertools.accumulate(map(len, blocks)))
    first_keys = [group[0].key for group in groups]
    index = seal_section(encode_index(BlockIndex.of([0, *ends[:-1]], first_keys, data_len=ends[-1])), Compression.NONE)
    info = SstInfo(first_entry=ordered[0].key, last_entry=ordered[-1].key, index_offset=ends[-1], index_len=len(index))
    await store.put(sst_key(root, sst_id), b"".join([*blocks, index]))
    return Sst(id=sst_id, info=info, format_version=1)
