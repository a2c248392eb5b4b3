"""The real command, run as a user runs it."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.commands import ENVIRONMENT, answer, program, refusal, shale


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


def tree(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_database_from_the_command_line(url: str, tmp_path: Path) -> None:
    assert answer("kv", "put", "a", "1", "-u", url)["seq"] == 1
    assert shale("kv", "put", "b", "--file", "-", "-u", url, stdin=b"\x00\xff").returncode == 0
    assert answer("--url", url, "--key-format", "hex", "kv", "put", "00ff", "0a", "--ttl", "1h")["seq"] == 3
    before = tree(tmp_path)

    row = answer("kv", "get", "a", "-u", url)
    assert (row["key_b64"], row["value_b64"], row["seq"]) == ("YQ==", "MQ==", 1)
    assert shale("kv", "get", "b", "--raw", "-u", url).stdout == b"\x00\xff"
    expiring = answer("kv", "get", "00ff", "--key-format=hex", SHALE_STORE=f"file://{tmp_path}", SHALE_PATH="db")
    assert expiring["expire_ms"] - expiring["create_ms"] == 3_600_000

    lines = [json.loads(line) for line in shale("kv", "scan", "-u", url).stdout.splitlines()]
    assert [base64.b64decode(line["key_b64"]) for line in lines] == [b"\x00\xff", b"a", b"b"]
    table = shale("kv", "scan", "--prefix", "a", "-o", "table", "-u", url).stdout
    assert table == b"KEY\tVALUE\tSEQ\na\t1\t1\n"
    assert answer("kv", "scan", "--count", "--start", "a", "--stop", "b", "-u", url)["rows"] == 1
    assert shale("kv", "scan", "--limit", "2", "-u", url).stdout.count(b"\n") == 2

    versions = answer("manifest", "list", "-u", url)["versions"]
    assert [each["id"] for each in versions] == list(range(1, len(versions) + 1))
    shown = answer("manifest", "show", "-u", url)
    assert shown["id"] == versions[-1]["id"]
    assert shown["manifest"]["writer_epoch"] == 3
    assert len(shown["manifest"]["tree"]["l0"]) == 3
    assert answer("manifest", "show", "1", "-u", url)["manifest"]["last_l0_seq"] == 0
    assert b"writer_epoch" in shale("manifest", "show", "-o", "table", "-u", url).stdout
    assert tree(tmp_path) == before, "a read-only command wrote"

    assert answer("kv", "scan", "--count", "--pin", "-u", url)["rows"] == 3
    assert answer("manifest", "show", "-u", url)["manifest"]["checkpoints"] == [], "the checkpoint is gone afterwards"
    assert tree(tmp_path) != before

    assert answer("kv", "delete", "a", "none", "-u", url)["seq"] == 4
    assert refusal("kv", "get", "a", "-u", url)[0] == 3


def test_the_version_is_told() -> None:
    told = program("--version")
    assert (told.returncode, told.stderr) == (0, b"")
    assert told.stdout.startswith(b"shale ")


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    """One process per exit code; tests/unit/cli/framework/test_usage_errors.py has the other cases."""
    assert refusal("kv", "get", "a", "-u", "nonsense")[0] == 2
    assert refusal("kv", "get", "a", "-u", f"file://{tmp_path}/db")[0] == 3
    assert refusal("kv", "get", "a", "-u", f"file://{tmp_path}/db", "--config", "/none.toml")[0] == 78
    assert shale("kv", "nonsense").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_is_corruption(url: str, tmp_path: Path) -> None:
    answer("kv", "put", "a", "1", "-u", url)
    newest = max((tmp_path / "db/manifest").iterdir())
    data = bytearray(newest.read_bytes())
    newest.write_bytes(bytes(data[: len(data) // 2]))
    code, line = refusal("manifest", "show", "-u", url)
    assert code == 65
    assert newest.name in line


@pytest.mark.slow
def test_doctor_reports_a_refused_connection_and_a_read_only_store(tmp_path: Path) -> None:
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    code, line = refusal("doctor", "-u", "s3://bucket/db", AWS_ENDPOINT_URL="http://127.0.0.1:1", **credentials)
    assert code == 69
    assert "s3://bucket" in line
    assert "Connection refused" in line
    code, line = refusal("doctor", "--store", "file:///sys/kernel/shale")
    assert code == 77
    assert "file:///sys/kernel/shale" in line


def test_the_doctor_is_content(tmp_path: Path) -> None:
    checks = answer("doctor", "--store", f"file://{tmp_path}")["checks"]
    assert {each["result"] for each in checks} == {"ok", "skipped"}
    assert len(checks) == 12
    assert len(answer("doctor", "--fast", "-u", f"file://{tmp_path}/db")["checks"]) == 4
    assert list(tmp_path.rglob("*")) == []


def test_help_is_there() -> None:
    assert b"kv" in program("--help").stdout
    assert b"fences" in shale("kv", "put", "--help").stdout
    assert [each["code"] for each in answer("help", "exit-codes")["exit_codes"]][:5] == [0, 1, 2, 3, 4]


def test_a_reader_of_the_output_may_leave(url: str) -> None:
    answer("kv", "put", "a", "1", "-u", url)
    command = f"{sys.executable} -m shale_cli kv scan -u {url} | true"
    result = subprocess.run(["sh", "-c", command], capture_output=True, env=ENVIRONMENT, check=False)
    assert result.stderr == b""
