"""Files that SlateDB 0.17.0 writes now, in shapes that the golden files lack: the same properties hold.

Every database is checked three ways: all pieces are written again byte for byte, filters are built again from the
rows, and our plain merge of manifest, SSTs and WAL shows what SlateDB's own scan shows.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

from shale.format.sst.filter import FilterHashes, encode_filters, hash_keys
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.types import Checkpoint, CompactionStatus, Compression
from tests.interop.compaction.slatedb_options import default_compactor_options
from tests.interop.database_files import DatabaseFiles, check_bytes, entries_of
from tests.interop.slatedb_databases import (
    EVERYTHING,
    Concatenate,
    FirstBytes,
    Shape,
    flush,
    flush_wal,
    open_folder,
    opened,
    put_all,
    scanned,
    until,
)
from tests.interop.sst_sections import plain_rows

BLOCKS = slate.SstBlockSize
CODECS = (None, "Snappy", "Zlib", "Lz4", "Zstd")


def some_rows(seed: int, count: int, *, value_bytes: int, prefixes: int = 7) -> list[tuple[bytes, bytes | None]]:
    rng = random.Random(seed)
    rows: dict[bytes, bytes | None] = {}
    for _ in range(count):
        key = b"%03d/%s" % (rng.randrange(prefixes), rng.randbytes(rng.randrange(1, 12)).hex().encode())
        rows[key] = None if rng.random() < 0.05 else rng.randbytes(rng.randrange(value_bytes)) * rng.randrange(1, 4)
    return list(rows.items())


def check_rows(files: DatabaseFiles, theirs: Sequence[tuple[bytes, bytes, int, int | None, int | None]]) -> None:
    assert [tuple(row) for row in files.rows()] == list(theirs)


def check_filters(files: DatabaseFiles, policies: Sequence[BloomPolicy], min_filter_keys: int) -> int:
    """Build every filter of the latest manifest again; return the number of filters."""
    built = 0
    manifest = files.latest()
    for sst_id in manifest.ssts():
        sst = files.sst(manifest, sst_id)
        entries = list(entries_of(sst))
        assert (sst.info.filter_len > 0) == (len(entries) >= min_filter_keys)
        if not sst.info.filter_len:
            continue
        rows = plain_rows(entries)
        hashes = hash_keys([entry.key for entry in entries])
        named = []
        for policy in policies:
            filter_hashes = FilterHashes(policy)
            filter_hashes.add_rows(rows, hashes)
            named.append((policy.name, filter_hashes.encode()))
        assert encode_filters(named) == sst.section(sst.info.filter_offset, sst.info.filter_len)
        built += 1
    return built


def sizes_with_codecs() -> list[Any]:
    """Return every size with two codecs; long runs use the other pairs."""
    return [
        pytest.param(size, codec, marks=() if (place - number) % len(CODECS) < 2 else pytest.mark.soak)
        for number, size in enumerate(BLOCKS)
        for place, codec in enumerate(CODECS)
    ]


@pytest.mark.parametrize(("block_size", "codec"), sizes_with_codecs())
def test_block_sizes_and_codecs(tmp_path: Path, block_size: Any, codec: str | None) -> None:
    settings: dict[str, object] = {"min_filter_keys": 50}
    if codec:
        settings["compression_codec"] = codec
    shape = Shape(settings=settings, block_size=block_size)
    rows = some_rows(1, 900, value_bytes=400)

    async def write() -> list[Any]:
        async with opened(open_folder(tmp_path), "db", shape) as db:
            for start in range(0, 700, 70):
                await put_all(db, rows[start : start + 70])
            await flush(db)
            await put_all(db, rows[650:800])
            await flush_wal(db)
            for key, value in rows[800:]:
                await (db.delete(key) if value is None else db.put(key, value))
            await flush_wal(db)
            return await scanned(db)

    theirs = asyncio.run(write())
    files = DatabaseFiles(tmp_path, "db")
    assert check_bytes(files) > 15
    assert check_filters(files, [BloomPolicy()], 50) == 1
    check_rows(files, theirs)
    (sst,) = files.latest().ssts().values()
    assert sst.info.compression.name == (codec or "none").upper()
    index_blocks = len(list(files.sst(files.latest(), sst.id).blocks()))
    assert index_blocks > 1 or block_size in (BLOCKS.BLOCK64_KIB, BLOCKS.BLOCK32_KIB)


@pytest.mark.parametrize("bits", [1, 2, 5, 10, 14, 21, 32])
def test_bits_and_prefixes_of_filters(tmp_path: Path, bits: int) -> None:
    extractor = FirstBytes("first5", 5)
    plain = FixedPrefix("first5", 5)

    def policies() -> list[Any]:
        with_prefix = slate.BloomFilterOptions(bits_per_key=bits, whole_key_filtering=True)
        only_prefix = slate.BloomFilterOptions(bits_per_key=bits, whole_key_filtering=False)
        return [
            slate.FilterPolicy.bloom_with_options(only_prefix, extractor),
            slate.FilterPolicy.bloom_with_options(with_prefix, extractor),
            slate.FilterPolicy.bloom(bits),
        ]

    async def write() -> list[Any]:
        shape = Shape(settings={"min_filter_keys": 0}, filter_policies=policies)
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await put_all(db, [(b"abc", b"short"), *some_rows(bits, 300, value_bytes=20, prefixes=40)])
            await flush(db)
            return await scanned(db)

    theirs = asyncio.run(write())
    files = DatabaseFiles(tmp_path, "db")
    check_bytes(files)
    ours = [BloomPolicy(bits, plain, whole_key=False), BloomPolicy(bits, plain), BloomPolicy(bits)]
    assert check_filters(files, ours, 0) == 1
    check_rows(files, theirs)


@pytest.mark.parametrize("with_segments", [False, True])
def test_compactions_with_versions_merges_and_segments(tmp_path: Path, with_segments: bool) -> None:
    """The compactor runs while a snapshot is open and operands are written; all versions of the files are checked."""
    compactor = default_compactor_options()
    compactor["poll_interval"] = "20ms"
    compactor["worker"] = {
        **compactor["worker"],
        "max_sst_size": 20000,
        "min_filter_keys": 100,
        "compactions_poll_interval": "20ms",
        "heartbeat_interval": "20ms",
    }
    settings = {"min_filter_keys": 100, "manifest_poll_interval": "50ms"}
    extractor = FirstBytes("p2", 2) if with_segments else None
    shape = Shape(settings=settings, block_size=BLOCKS.BLOCK2_KIB, extractor=extractor, merge_operator=Concatenate())
    compacting = Shape(
        settings={**settings, "compactor_options": compactor},
        block_size=BLOCKS.BLOCK2_KIB,
        extractor=extractor,
        merge_operator=Concatenate(),
    )

    async def write() -> list[Any]:
        store = open_folder(tmp_path)
        async with opened(store, "db", shape) as db:
            snapshots = []
            for round_ in range(5):
                await put_all(db, some_rows(round_, 250, value_bytes=120, prefixes=3))
                for key in (b"00m/a", b"01m/b"):
                    await db.merge(key, b"<%d>" % round_)
                snapshots.append(await db.snapshot())
                await put_all(db, some_rows(round_, 40, value_bytes=50, prefixes=3))
                await flush(db)
        async with opened(store, "db", compacting) as db:
            await until(lambda: compacted(DatabaseFiles(tmp_path, "db")))
            await db.put(b"00m/last", b"in the WAL")
            await flush_wal(db)
            return await scanned(db)

    async def compacted(files: DatabaseFiles) -> bool:
        manifest = files.latest()
        return any(tree.compacted for _, tree in manifest.trees())

    theirs = asyncio.run(write())
    files = DatabaseFiles(tmp_path, "db")
    check_bytes(files)
    manifest = files.latest()
    assert bool(manifest.segments) == with_segments
    assert check_filters(files, [BloomPolicy()], 100) > 1
    assert [(row.key, row.value) for row in files.rows()] == [row[:2] for row in theirs]
    states = {entry.status for value in files.decoded_compactions().values() for entry in value.entries}
    assert CompactionStatus.COMPLETED in states


def test_checkpoints_clones_projections_and_unions(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    middle = slate.KeyRange(start=b"001/", start_inclusive=True, end=b"005/zz", end_inclusive=False)

    async def write() -> dict[str, list[Any]]:
        seen = {}
        for seed, root in enumerate(("left", "right")):
            rows = [(b"%d" % seed + key, value) for key, value in some_rows(seed, 300, value_bytes=60)]
            async with opened(store, root, Shape(block_size=BLOCKS.BLOCK1_KIB)) as db:
                await put_all(db, rows[:200])
                await flush(db)
                await put_all(db, rows[150:])
                await flush(db)
        async with opened(store, "parent", Shape()) as db:
            await put_all(db, some_rows(9, 400, value_bytes=60))
            await flush(db)
            admin = slate.AdminBuilder("parent", store).build()
            made = await admin.create_detached_checkpoint(
                slate.CheckpointOptions(lifetime_ms=600_000, source=None, name="named, and späť")
            )
            await put_all(db, some_rows(10, 100, value_bytes=60))
            await flush(db)
            seen["parent"] = await scanned(db)
        sources = {
            "whole": [slate.CloneSourceSpec(path="parent", checkpoint=None, projection_range=None)],
            "older": [slate.CloneSourceSpec(path="parent", checkpoint=made.id, projection_range=None)],
            "part": [slate.CloneSourceSpec(path="parent", checkpoint=None, projection_range=middle)],
            "union": [
                slate.CloneSourceSpec(path="left", checkpoint=None, projection_range=None),
                slate.CloneSourceSpec(path="right", checkpoint=None, projection_range=None),
            ],
        }
        for root, specs in sources.items():
            builder = slate.AdminBuilder(root, store).build().create_clone_builder_from_source(specs[0])
            builder.with_clone_path(root)
            for spec in specs[1:]:
                builder.with_source(spec)
            await builder.build()
            async with opened(store, root, Shape()) as db:
                await db.put(b"own", b"write")
                await flush(db)
                seen[root] = await scanned(db)
        return seen

    seen = asyncio.run(write())
    for root, theirs in seen.items():
        files = DatabaseFiles(tmp_path, root)
        check_bytes(files)
        check_rows(files, theirs)
    assert len(seen["older"]) < len(seen["whole"])
    assert {db.path for db in DatabaseFiles(tmp_path, "union").latest().external_dbs} == {"left", "right"}
    assert any(view.visible_range for view in DatabaseFiles(tmp_path, "part").latest().views())
    names = [each.name for each in checkpoints(DatabaseFiles(tmp_path, "parent"))]
    assert "named, and späť" in names


def test_keys_that_are_prefixes_and_long_shared_ones(tmp_path: Path) -> None:
    """The keys need separators of every length, one key spans many blocks, and one file has a single row."""
    rows = [(b"a" * length, b"v" * (length % 97)) for length in range(1, 400)]
    rows += [(b"z" * 3000 + bytes([tail]), b"") for tail in range(60)]

    async def write() -> list[Any]:
        shape = Shape(settings={"compression_codec": "Zstd"}, block_size=BLOCKS.BLOCK1_KIB)
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await put_all(db, rows)
            await flush(db)
            await db.put(b"\xff\xff\xff", b"alone")
            await flush(db)
            snapshots = []
            for version in range(40):
                await db.put(b"same", b"%d" % version * 80)
                snapshots.append(await db.snapshot())
            await flush(db)
            return await scanned(db)

    theirs = asyncio.run(write())
    files = DatabaseFiles(tmp_path, "db")
    check_bytes(files)
    check_rows(files, theirs)
    assert all(sst.info.compression is Compression.ZSTD for sst in files.latest().ssts().values())


def checkpoints(files: DatabaseFiles) -> tuple[Checkpoint, ...]:
    return files.latest().checkpoints


def test_the_package_is_the_one_we_claim() -> None:
    from importlib.metadata import version

    assert version("slatedb") == "0.17.0"
    assert EVERYTHING.start is None
