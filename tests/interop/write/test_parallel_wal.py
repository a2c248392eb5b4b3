"""SlateDB leaves databases alone whose WAL is written in parallel or kept by a backend.

It would write one fence, and search for no gap, or for no file at all.

Source: docs/reference/protocol.md 4.13 (F2.22).
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

import shale
from shale.testing.wal_backends import MemoryWalBackend
from tests.interop.slatedb_databases import Shape, open_folder, opened

ROOT = "db"


async def write(store: Any) -> None:
    async with opened(store, ROOT, Shape()):
        pass


async def read(store: Any) -> None:
    await slate.DbReaderBuilder(ROOT, store).build()


async def administer(store: Any) -> None:
    await slate.AdminBuilder(ROOT, store).build().read_manifest(None)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def refuses(folder: Path, use: Callable[[Any], Awaitable[None]], **settings: Any) -> None:
    async with shale.Db.open(f"file://{folder}/{ROOT}", **settings) as db:
        await db.put(b"k", b"v")
    before = files_in(folder)
    with pytest.raises(slate.Error, match=r"(?i)version"):
        await use(open_folder(folder))
    assert files_in(folder) == before


@pytest.mark.fault("F2.22")
@pytest.mark.parametrize("use", [write, read, administer])
def test_slatedb_refuses_a_database_with_a_parallel_wal(tmp_path: Path, use: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        await refuses(tmp_path, use, max_parallel_writes=2)
        async with shale.Db.open(f"file://{tmp_path}/{ROOT}") as db:
            assert await db.get(b"k") == b"v"

    asyncio.run(main())


@pytest.mark.parametrize("use", [write, read, administer])
def test_slatedb_refuses_a_database_whose_wal_is_in_a_backend(
    tmp_path: Path, use: Callable[[Any], Awaitable[None]]
) -> None:
    """It would find no file below ``wal/``, and open the database without the rows of the backend."""

    async def main() -> None:
        backend = MemoryWalBackend()
        await refuses(tmp_path, use, wal=backend)
        async with shale.Db.open(f"file://{tmp_path}/{ROOT}", wal=backend) as db:
            assert await db.get(b"k") == b"v"

    asyncio.run(main())
