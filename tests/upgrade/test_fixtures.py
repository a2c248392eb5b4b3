"""Databases of every earlier version: this one reads, verifies, writes, compacts and collects; SlateDB reads them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from slatedb import uniffi as slate

import shale
from tests.integration.daemons.daemon_process import running
from tests.integration.policies.identities import wait_until
from tests.interop.slatedb_databases import FirstBytes, Shape, open_folder, opened, scanned
from tests.upgrade.fixture_databases import FixtureDatabase, fixture_databases
from tests.upgrade.scenario import COMPACTOR, KEY


def is_first_of_its_kind(database: FixtureDatabase) -> bool:
    """Whether no older fixture has a database like this."""
    return database == next(each for each in fixture_databases() if each.name == database.name)


each_database = pytest.mark.parametrize("database", fixture_databases(), ids=str)
each_in_time = pytest.mark.parametrize(
    "database",
    [
        pytest.param(each, id=str(each), marks=() if is_first_of_its_kind(each) else pytest.mark.soak)
        for each in fixture_databases()
    ],
)
"""The tests take the oldest of each kind, ``make soak`` all of them."""
NEW = {b"key00": b"of this version", b"new": b"row"}
L0S_OF_A_JOB = 4


class IntAdd(slate.MergeOperator):
    """The operator ``int_add``."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        added = int.from_bytes(existing_value or b"", "little") + int.from_bytes(operand, "little")
        return added.to_bytes(8, "little")


def without_expired(rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Leave out a row whose lifetime has ended: it is shown until a flush or a compaction removes it."""
    return {key: value for key, value in rows.items() if key != b"expired"}


def read(folder: Path, database: FixtureDatabase, **options: object) -> dict[bytes, bytes]:
    async def main() -> dict[bytes, bytes]:
        url = f"file://{folder}/{database.name}"
        async with shale.DbReader.open(url, **database.reading(), **options) as reader:
            return without_expired({bytes(row.key): bytes(row.value) async for row in reader.scan()})

    return asyncio.run(main())


@each_database
def test_every_row_is_read_and_verified(database: FixtureDatabase, tmp_path: Path) -> None:
    database.unpack(tmp_path)
    assert read(tmp_path, database) == database.rows

    async def verify() -> None:
        encryption = {key: value for key, value in database.reading().items() if key == "block_transformer"}
        async with shale.Admin(f"file://{tmp_path}/{database.name}", **encryption) as admin:
            assert (await admin.verify(deep=True)).findings == ()

    asyncio.run(verify())


async def write(url: str, database: FixtureDatabase) -> None:
    """Write as many L0s as a compaction takes, and a row that stays in the WAL."""
    async with shale.Db.open(url, **database.writing(), gc=False, compactor=False) as db:
        await db.delete(b"tail")
        for number in range(L0S_OF_A_JOB):
            for key, value in NEW.items():
                await db.put(key, value if number == L0S_OF_A_JOB - 1 else b"%d" % number)
            await db.flush("memtable")
        await db.put(b"late", b"in the WAL")
        await db.flush("wal")


async def collect(url: str) -> None:
    async with shale.Admin(url) as admin:
        await admin.gc.run(await admin.gc.plan(min_age="0s"))


def write_and_compact(folder: Path, database: FixtureDatabase, log: Path) -> None:
    """Write rows, compact the L0s and what was submitted before, and collect garbage."""
    url = f"file://{folder}/{database.name}"
    options: tuple[str, ...] = ()
    if operator := database.opened.get("merge_operator"):
        options = ("--set", f"compactor_options.worker.merge_operator={operator}")
    if "encrypted" in database.opened:
        keys = log.with_name("keys")
        keys.write_text(f"k1 {KEY.hex()}\n")
        options = ("--set", f"encryption.key_file={keys}")
    with running("shale_compactor", "--url", url, "--take-over", *COMPACTOR, *options, log=log) as compactor:
        compactor.wait_for("daemon.ready")
        asyncio.run(write(url, database))
        wait_until(lambda: len(compactor.lines("compaction.committed")) >= 1 + (database.name == "submitted"))
        assert compactor.stop() == 0
    asyncio.run(collect(url))


def expected(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows after ``write_and_compact``."""
    return {key: value for key, value in rows.items() if key != b"tail"} | NEW | {b"late": b"in the WAL"}


@pytest.mark.slow
@each_in_time
def test_it_is_written_compacted_and_collected(database: FixtureDatabase, tmp_path: Path) -> None:
    database.unpack(tmp_path)
    write_and_compact(tmp_path, database, tmp_path / "log")
    assert read(tmp_path, database) == expected(database.rows)
    if "encrypted" in database.opened or "max_parallel_writes" in database.opened:
        return  # SlateDB opens none of these
    extractor = FirstBytes("first three", 3) if "prefix_length" in database.opened else None
    operator = IntAdd() if "merge_operator" in database.opened else None

    async def with_slatedb() -> dict[bytes, bytes]:
        shape = Shape(extractor=extractor, merge_operator=operator)
        async with opened(open_folder(tmp_path), database.name, shape) as db:
            return without_expired({row[0]: row[1] for row in await scanned(db)})

    assert asyncio.run(with_slatedb()) == expected(database.rows)


def test_a_checkpoint_of_an_earlier_version_still_shows_its_state(tmp_path: Path) -> None:
    database = next(each for each in fixture_databases() if each.name == "plain")
    database.unpack(tmp_path)
    write_and_compact(tmp_path, database, tmp_path / "log")
    rows = {key: value for key, value in database.rows.items() if key != b"after"}
    assert read(tmp_path, database, checkpoint="kept") == rows


def test_each_fixture_has_every_feature_that_its_version_had() -> None:
    """A fixture that lacks one would test nothing for it."""
    names: dict[str, set[str]] = {}
    for each in fixture_databases():
        names.setdefault(each.version, set()).add(each.name)
    first = {"plain", "parent", "merge", "segments", "snappy", "zlib", "lz4", "zstd", "encrypted", "submitted"}
    assert names == {
        "0.1.0.dev1": first,
        "0.1.0.dev2": {*first, "clone"},
        "0.1.0": {*first, "clone", "parallel"},
        "0.2.0.dev1": {*first, "clone", "parallel"},
    }
