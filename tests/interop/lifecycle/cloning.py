"""Make, fill and split clones with either implementation."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from slatedb import uniffi as slate

import shale
from shale.admin.clones import source
from shale.sst.verify.codes import Code
from tests.interop.database_files import DatabaseFiles
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all, scanned

Rows = dict[bytes, bytes]
QUIET = Shape(settings={"garbage_collector_options": None})
ALL = {b"k%02d" % number: b"first" for number in range(20)}
CUT = b"k10"
OURS, THEIRS = "ours", "slatedb"


async def fill(folder: Path, path: str, rows: Rows, *, by: str, tables: int = 3) -> None:
    """Write L0s that each hold every key."""
    for number in range(tables):
        values = {key: b"%s %d" % (value, number) for key, value in rows.items()}
        if by == THEIRS:
            async with opened(open_folder(folder), path, QUIET) as db:
                await put_all(db, [*values.items()])
                await flush(db)
        else:
            async with shale.Db.open(f"file://{folder}/{path}", l0_max_ssts=100) as db:
                for key, value in values.items():
                    await db.put(key, value)
                await db.flush("wal")
                await db.flush("memtable")


async def clone(folder: Path, path: str, *sources: tuple[str, bytes | None, bytes | None], by: str) -> None:
    """Clone parts of databases, each as path, first key and end."""
    if by == OURS:
        async with shale.Admin(f"file://{folder}/{path}") as admin:
            await admin.clones.create(*(source(name, start=start, end=end) for name, start, end in sources))
        return
    specs = [
        slate.CloneSourceSpec(path=name, checkpoint=None, projection_range=_range(start, end))
        for name, start, end in sources
    ]
    builder = slate.AdminBuilder(path, open_folder(folder)).build().create_clone_builder_from_source(specs[0])
    for spec in specs[1:]:
        builder.with_source(spec)
    await builder.build()


def _range(start: bytes | None, end: bytes | None) -> Any:
    if start is None and end is None:
        return None
    return slate.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)


async def read_by_both(folder: Path, path: str, *, past: Collection[Code] = ()) -> Rows:
    """Return the rows of Shale's reader; SlateDB's writer must see the same, and verification must find nothing.

    Args:
        past: what may be found fault with in versions before the last.
    """
    async with shale.Admin(f"file://{folder}/{path}") as admin:
        findings = (await admin.verify()).findings
    latest = f"{path}/manifest/{max(DatabaseFiles(folder, path).manifests()):020}.manifest"
    assert [each for each in findings if each.code not in past or each.object == latest] == []
    async with shale.DbReader.open(f"file://{folder}/{path}") as reader:
        ours = {row.key: row.value async for row in reader.scan()}
    async with opened(open_folder(folder), path, QUIET) as db:
        theirs = {row[0]: row[1] for row in await scanned(db)}
    assert ours == theirs
    return ours


def last(rows: Rows, tables: int = 3) -> Rows:
    return {key: b"%s %d" % (value, tables - 1) for key, value in rows.items()}


async def split(folder: Path, *, writes: str, by: str) -> None:
    await fill(folder, "p", ALL, by=writes)
    await clone(folder, "l", ("p", None, CUT), by=by)
    await clone(folder, "r", ("p", CUT, None), by=by)
    assert await read_by_both(folder, "l") == {key: value for key, value in last(ALL).items() if key < CUT}
    assert await read_by_both(folder, "r") == {key: value for key, value in last(ALL).items() if key >= CUT}
