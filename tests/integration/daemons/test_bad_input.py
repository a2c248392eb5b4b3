"""Damaged databases and invalid settings in real processes: one line that names the object and its place, the
documented exit code (docs/reference/exit-codes.md), and not one byte of the store changed.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import shale
from shale.format.names import PREFLIGHT_FOLDER
from tests.interop.sst_sections import open_sst
from tests.paths import REPOSITORY
from tests.processes.forks import run

DATA, CONFIG, USAGE = 65, 78, 2
TIMEOUT_S = 120
DAEMONS = ("shale_writer", "shale_reader", "shale_compactor", "shale_compactor.worker", "shale_gc")
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services"}

Damage = Callable[[bytes], bytes]
Argv = tuple[str, ...]


def flipped(place: int) -> Damage:
    def damage(data: bytes) -> bytes:
        at = place % len(data)
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]

    return damage


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def newer_metadata(data: bytes) -> bytes:
    return b"\x00\x09" + data[2:]


def flipped_index(data: bytes) -> bytes:
    return flipped(open_sst(data, "").info.index_offset + 3)(data)


def newer_sst(data: bytes) -> bytes:
    return data[:-2] + b"\x00\x09"


def daemon(module: str, *args: str) -> Argv:
    own = ("--set", "http.port=0") if module in ("shale_writer", "shale_reader") else ()
    return (module, "--admin-port", "0", "--set", "store.start_timeout=60s", *own, *args)


def command(*args: str) -> Argv:
    return ("shale_cli", *args)


ALL_DAEMONS = tuple(daemon(module) for module in DAEMONS)
GET, SCAN, PUT = command("kv", "get", "key01"), command("kv", "scan"), command("kv", "put", "a", "1")
SHOW = command("manifest", "show")
READS_MANIFEST = (*ALL_DAEMONS, daemon("shale_compactor", "--take-over"), GET, PUT, SHOW)
REPLAYS = (daemon("shale_writer"), daemon("shale_reader", "--set", "follow_latest=true"), GET, PUT)
COORDINATES = (daemon("shale_compactor"), daemon("shale_compactor", "--take-over"))
READS_COMPACTIONS = (*COORDINATES, daemon("shale_compactor.worker"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a database with an L0 SST, rows that only the WAL has, and a compactions file."""
    folder = tmp_path_factory.mktemp("good")

    async def main() -> None:
        url = f"file://{folder}/db"
        async with shale.Db.open(url) as db:
            for number in range(40):
                await db.put(b"key%02d" % number, b"value" * 10)
        db = await shale.Db.open(url)
        await db.put(b"late", b"1")
        await db.close(flush="wal")

    asyncio.run(main())
    compactions = REPOSITORY / "tests/interop/fixtures/slatedb-0.17/compacted_runs/db/compactions"
    (folder / "db" / "compactions").mkdir()
    shutil.copy(max(compactions.iterdir()), folder / "db" / "compactions" / f"{1:020}.compactions")
    for file in folder.rglob("*.compactions"):
        os.utime(file, (0, 0))  # no coordinator runs at the moment
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the objects without those of the start-up check, which a process may not have time to delete."""
    files = [file for file in folder.rglob("*") if file.is_file() and PREFLIGHT_FOLDER not in file.parts]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def ends(store: Path, *argvs: Argv) -> list[tuple[int, str, Argv]]:
    """Run processes on one store concurrently; return the exit code and the error line of each."""

    def run(argv: Argv) -> tuple[int, str, Argv]:
        done = finished(store, argv)
        complaints = [line for line in done.stderr.decode().splitlines() if not _is_harmless(line)]
        assert len(complaints) == 1, (argv, done.returncode, done.stderr.decode())
        assert done.stdout == b"", argv
        return done.returncode, complaints[0], argv

    with ThreadPoolExecutor(len(argvs)) as pool:
        return list(pool.map(run, argvs))


def finished(store: Path, argv: Argv) -> subprocess.CompletedProcess[bytes]:
    place = ("--url", f"file://{store}/db")
    return run(*argv, *place, env=ENVIRONMENT, folder=store.parent, is_strict=True, timeout_s=TIMEOUT_S)


def _is_harmless(line: str) -> bool:
    return line.startswith("{") and json.loads(line)["level"] == "info"


# Who reads a thing is shown with its first damage; each of the others is met by one or two of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "damage", "argvs"),
    [
        pytest.param("manifest", truncated, READS_MANIFEST, id="manifest-truncated"),
        pytest.param("manifest", emptied, ALL_DAEMONS[:1], id="manifest-emptied"),
        pytest.param("manifest", flipped(2), (*ALL_DAEMONS[2:], GET), id="manifest-flipped"),
        pytest.param("manifest", newer_metadata, ALL_DAEMONS[:2], id="manifest-newer"),
        pytest.param("compactions", truncated, READS_COMPACTIONS, id="compactions-truncated"),
        pytest.param("compactions", newer_metadata, READS_COMPACTIONS[1:], id="compactions-newer"),
        pytest.param("wal", truncated, REPLAYS, id="wal-truncated"),
        pytest.param("wal", flipped(20), REPLAYS[:2], id="wal-flipped-row"),
        pytest.param("wal", flipped(-60), REPLAYS[:2], id="wal-flipped-footer"),
        pytest.param("wal", newer_sst, REPLAYS[:2], id="wal-newer"),
        pytest.param("compacted", truncated, (GET, SCAN), id="sst-truncated"),
        pytest.param("compacted", emptied, (SCAN,), id="sst-emptied"),
        pytest.param("compacted", flipped(20), (GET,), id="sst-flipped-row"),
        pytest.param("compacted", flipped_index, (GET,), id="sst-flipped-index"),
    ],
)
def test_a_damaged_database_is_left_alone(
    good: Path, tmp_path: Path, kind: str, damage: Damage, argvs: tuple[Argv, ...]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(good, store)
    file = max((store / "db" / kind).iterdir())
    file.write_bytes(damage(file.read_bytes()))
    os.utime(file, (0, 0))
    before = contents(store)
    for code, line, argv in ends(store, *argvs):
        assert code == DATA, (argv, line)
        assert f"db/{kind}/{file.name}" in line, argv
    assert contents(store) == before


@pytest.mark.parametrize(
    ("argvs", "code", "names"),
    [
        pytest.param(
            tuple(daemon(module, "--set", "nonsense=1") for module in DAEMONS), CONFIG, "nonsense", id="unknown"
        ),
        pytest.param((daemon("shale_writer", "--set", "cpu_threads=many"),), CONFIG, "cpu_threads", id="type"),
        pytest.param(
            (daemon("shale_gc", "--set", "shutdown.deadline=soon"),), CONFIG, "shutdown.deadline", id="duration"
        ),
        pytest.param((daemon("shale_compactor", "--config", "none.toml"),), CONFIG, "none.toml", id="no file"),
        pytest.param(
            tuple(
                daemon(module, "--set", 'compactor_options.worker.compaction_filters=["nobodys"]')
                for module in ("shale_compactor", "shale_compactor.worker")
            ),
            CONFIG,
            "compactor_options.worker: no compaction filter is called 'nobodys'; registered: ",
            id="unknown filter",
        ),
        pytest.param((command("kv", "put", "k" * 65_536, "v"),), USAGE, "65536", id="oversize key"),
    ],
)
def test_settings_and_arguments_that_cannot_be(
    good: Path, tmp_path: Path, argvs: tuple[Argv, ...], code: int, names: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(good, store)
    before = contents(store)
    for seen, line, argv in ends(store, *argvs):
        assert seen == code, (argv[0], line)
        assert names in line
        assert len(line) < 400, "an oversize thing is not repeated"
    assert contents(store) == before


def test_the_undamaged_database_is_served(good: Path, tmp_path: Path) -> None:
    """The processes above fail only because of the damage."""
    store = tmp_path / "store"
    shutil.copytree(good, store)
    for argv in (GET, command("kv", "get", "late"), PUT):
        done = finished(store, argv)
        assert done.returncode == 0, done.stderr.decode()
