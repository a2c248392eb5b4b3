"""``shale cas init`` ties one transactional store to one directory: another directory is refused by every process."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.commands import answer, refusal, shale

UNSAFE = 81


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"SHALE_STORE__CAS": "two-phase", "SHALE_STORE__TRANSACTIONAL_URL": f"sqlite://{tmp_path}/records.db"}


@pytest.fixture
def stores(settings: dict[str, str], tmp_path: Path) -> tuple[str, str]:
    """Return the URLs of the directory that has the records, with a database, and of another one."""
    one, other = f"file://{tmp_path}/one", f"file://{tmp_path}/other"
    for _ in range(2):
        answer("cas", "init", "--store", one, **settings)
    answer("kv", "put", "key", "value", "-u", f"{one}/db", **settings)
    return one, other


def test_commands_refuse_the_records_of_another_directory(settings: dict[str, str], stores: tuple[str, str]) -> None:
    one, other = stores
    before = answer("cas", "status", "-u", f"{one}/db", **settings)
    for command in (
        ("cas", "init", "--store", other),
        ("cas", "recover", "-u", f"{other}/db"),
        ("cas", "migrate", "--to", "two-phase", "--yes", "-u", f"{other}/db"),
        ("kv", "put", "key", "other", "-u", f"{other}/db"),
        ("kv", "get", "key", "-u", f"{other}/db"),
    ):
        code, message = refusal(*command, **settings)
        assert code == UNSAFE, (command, message)
        assert "another store" in message
    assert answer("cas", "status", "-u", f"{one}/db", **settings) == before
    assert shale("kv", "get", "key", "--raw", "-u", f"{one}/db", **settings).stdout == b"value"


def test_the_doctor_and_a_daemon_say_so(settings: dict[str, str], stores: tuple[str, str]) -> None:
    _, other = stores
    told = shale("doctor", "--store", other, "-o", "json", **settings)
    assert told.returncode == 4
    failed = {each["check"] for each in json.loads(told.stdout)["checks"] if each["result"] == "failed"}
    assert failed == {"records"}
    daemon = shale("gc", "--once", "-u", f"{other}/db", "--admin-port", "0", **settings)
    assert daemon.returncode == UNSAFE, daemon.stderr.decode()


def test_a_wal_store_belongs_to_it(settings: dict[str, str], stores: tuple[str, str], tmp_path: Path) -> None:
    one, _ = stores
    wal = f"file://{tmp_path}/wal"
    code, _ = refusal("kv", "put", "k", "v", "-u", f"{one}/new", "--wal-store", wal, **settings)
    assert code == UNSAFE
    answer("cas", "init", "--store", one, "--wal-store", wal, **settings)
    answer("kv", "put", "k", "v", "-u", f"{one}/new", "--wal-store", wal, **settings)
