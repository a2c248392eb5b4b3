"""SlateDB reads SSTs of our builder in shapes that its own writer makes rarely, by scan and by point lookup."""

import asyncio
import random
from itertools import pairwise
from pathlib import Path

import pytest

from shale.env import Env, InlineCpu, SystemClock
from shale.format.names import sst_key
from shale.iter.source import RowsSource, drain
from shale.iter.visible import VisibleSource
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.protocol.manifest_store import ManifestStore
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_TOMBSTONE,
    Compression,
    Entry,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Sst,
    SstView,
    Tree,
)
from tests.interop.slatedb_databases import Shape, open_folder, opened, scanned

STAMPED = FLAG_CREATE_TS
FAR = 4_102_444_800_000


def newest_rows(rng: random.Random) -> list[Entry]:
    """Return the rows of the L0: many versions over many blocks, long keys and values, tombstones, expiry."""
    rows = [Entry(b"versions", b"%d" % seq * 30, seq, STAMPED, seq) for seq in range(1300, 1000, -1)]
    rows += [Entry(b"long" * 16_000 + b"%d" % number, b"v", 1400, STAMPED, 5) for number in range(3)]
    rows += [
        Entry(b"k%05d" % number, rng.randbytes(rng.choice((0, 10, 9000))), 1500, STAMPED, 5)
        for number in range(0, 900, 3)
    ]
    rows += [Entry(b"k%05d" % number, b"", 1600, STAMPED | FLAG_TOMBSTONE, 6) for number in range(1, 900, 3)]
    rows += [Entry(b"ttl%d" % number, b"x", 1700, STAMPED | FLAG_EXPIRE_TS, 7, FAR) for number in range(40)]
    return sorted(rows, key=lambda row: (row.key, -row.seq))


def older_rows(rng: random.Random) -> list[Entry]:
    """Return the rows of the run below the L0."""
    return [Entry(b"k%05d" % number, rng.randbytes(100), number + 1, STAMPED, 1) for number in range(950)]


async def write_database(folder: Path, options: SstOptions) -> list[Entry]:
    """Write an L0 above a run of several SSTs; return the rows that a reader must see."""
    env = Env(SystemClock(), random.Random(4), InlineCpu())
    store = connect(f"file://{folder}", env)

    async def write(rows: Rows, until_bytes: int) -> list[SstView]:
        views = []
        while len(rows):
            builder = SstBuilder(options)
            taken = builder.add(rows, until_bytes=until_bytes)
            parts, info = builder.finish()
            sst = Sst(id=env.ids.ulid(), info=info)
            await store.put(sst_key("db", sst.id), b"".join(parts))
            views.append(SstView.identity(sst))
            rows = rows.slice(taken, len(rows))
        return views

    rng = random.Random(options.block_size_bytes)
    newest, older = rows_from_entries(newest_rows(rng)), rows_from_entries(older_rows(rng))
    run = await write(older, 20_000)
    assert len(run) > 1
    assert all((left.sst.info.last_entry or b"") < (right.sst.info.first_entry or b"") for left, right in pairwise(run))
    tree = Tree(l0=tuple(await write(newest, 1 << 40)), compacted=(SortedRun(id=RunId(0), ssts=tuple(run)),))
    manifest = Manifest(tree=tree, last_l0_seq=Seq(1700), last_l0_clock_tick=10)
    await ManifestStore(store, "db", env).create_new(manifest)
    await store.aclose()
    seen = await drain(VisibleSource([RowsSource(newest), RowsSource(older)], None, env))
    return entries_from_rows(concat_rows(seen))


@pytest.mark.parametrize("block_size", [1024, 4096, 65_536])
@pytest.mark.parametrize("compression", list(Compression))
def test_the_peer_sees_every_row(tmp_path: Path, block_size: int, compression: Compression) -> None:
    options = SstOptions(block_size_bytes=block_size, compression=compression, min_filter_keys=1)

    async def scenario() -> None:
        expected = await write_database(tmp_path, options)
        async with opened(open_folder(tmp_path), "db", Shape()) as db:
            theirs = await scanned(db)
            assert [(row[0], row[1], row[2]) for row in theirs] == [(row.key, row.value, row.seq) for row in expected]
            for row in expected[::17]:
                assert await db.get(row.key) == row.value
            assert await db.get(b"k00001") is None

    asyncio.run(scenario())
