"""A database of SlateDB whose WAL is in another store, opened without that store."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import shale
from shale.errors import InvalidDbState
from tests.golden_files import FIXTURES
from tests.interop.slatedb_databases import Shape, open_folder, opened, scanned

CASE = FIXTURES / "separate_wal_store"


def copied(folder: Path) -> Path:
    """Copy the database from its main store only."""
    shutil.copytree(CASE / "db", folder / "db")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def live_keys() -> list[bytes]:
    live = json.loads((CASE / "contents.json").read_text())["dbs"]["db"]["live"]
    return [bytes.fromhex(row[0]) for row in live]


def test_ours_ask_for_it_and_write_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = copied(tmp_path)
        before, store = files(folder), f"file://{folder}"
        with pytest.raises(InvalidDbState, match=r"wal/0*3\.sst does not exist, .*name it with wal_store"):
            await shale.Db.open("db", store=store)
        with pytest.raises(InvalidDbState, match=r"wal/0*3\.sst does not exist, .*name it with wal_store"):
            await shale.DbReader.open("db", store=store, follow_latest=True)
        assert files(folder) == before
        shutil.copytree(CASE / "walstore", folder / "walstore")
        async with shale.Db.open("db", store=store, wal_store=f"{store}/walstore") as db:
            assert [row.key async for row in db.scan()] == live_keys()

    asyncio.run(scenario())


def test_the_peer_misses_rows_without_a_word(tmp_path: Path) -> None:
    """SlateDB starts a second WAL, so Shale does not imitate it here."""

    async def scenario() -> None:
        folder = copied(tmp_path)
        async with opened(open_folder(folder), "db", Shape()) as peer:
            keys = [row[0] for row in await scanned(peer)]
        assert keys == live_keys()[: len(keys)] != live_keys()
        assert (folder / "db" / "wal" / f"{3:020}.sst").exists()

    asyncio.run(scenario())
