"""``shale spark …`` as a user types it, in the session of the tests."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pyspark.sql import SparkSession

import shale as shale_library
from shale.service.exit_codes import ExitCode
from shale_cli.__main__ import main
from shale_spark.cli import command

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

Shale = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shale(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shale:
    """Return a function that runs a command in this process without ending the process."""
    monkeypatch.setattr(command, "exit_process", sys.exit)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["spark", *arguments, "-o", "json"])
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store/orders"


def data(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert code == ExitCode.OK, err
    return json.loads(out)


def test_a_database_from_a_csv_file(shale: Shale, url: str, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,amount\no/1,7\no/2,8\n")
    source = ("load", str(tmp_path / "orders.csv"), "--format", "csv", "--option", "header=true", "--key", "id")
    loaded = data(shale(*source, "--value-format", "json", "-u", url))
    assert loaded["rows"] == 2
    seen = data(shale("check", "-u", url))["executors"]
    assert [(each["has_kernels"], each["manifest_id"]) for each in seen] == [(True, 1)]
    target = str(tmp_path / "out")
    columns = ("--value-format", "json", "--schema", "key string, amount string")
    written = data(shale("export", target, "--format", "json", *columns, "--start", "o/2", "-u", url))
    assert written["rows"] == 1
    lines = "".join(file.read_text() for file in Path(target).glob("*.json"))
    assert json.loads(lines) == {"key": "o/2", "amount": "8"}


def test_changes_are_lines(shale: Shale, url: str) -> None:
    async def write() -> None:
        async with shale_library.Db.open(url) as db:
            await (await db.put(b"a", b"1")).durable()
            await (await db.delete(b"a")).durable()

    anyio.run(write)
    code, out, err = shale("changes", "--start", "earliest", "--once", "-u", url)
    assert code == ExitCode.OK, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["op"], line["seq"], line["key_b64"]) for line in lines] == [("put", 1, "YQ=="), ("delete", 2, "YQ==")]
    assert lines[0]["create_ts"].endswith("+00:00")


def test_a_flipped_byte_is_found(shale: Shale, url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"key": "a", "value": "1"}\n')
    loaded = data(shale("load", str(tmp_path / "rows.json"), "--format", "json", "-u", url))
    assert loaded["rows"] == 1
    report = data(shale("scrub", "-u", url))
    assert (report["rows"], report["findings"]) == (1, [])
    (sst,) = (tmp_path / "store").glob("orders/compacted/*.sst")
    stored = bytearray(sst.read_bytes())
    stored[3] ^= 1
    sst.write_bytes(stored)
    code, out, err = shale("scrub", "-u", url)
    assert code == ExitCode.NEGATIVE
    assert sst.name in err
    assert len(json.loads(out)["findings"]) == len(err.splitlines()) > 0


def test_mistakes_of_exports_and_changes_are_usage(shale: Shale, url: str) -> None:
    for arguments in (
        ("export", "/x", "--option", "no value"),
        ("changes", "--to", "/x"),
        ("compact", "--full", "--sources", "SR1"),
    ):
        code, out, err = shale(*arguments, "-u", url)
        assert (code, out, len(err.splitlines())) == (ExitCode.USAGE, "", 1), err


def test_a_row_without_a_key_is_told_and_nothing_is_there(shale: Shale, url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"key": "a", "value": "1"}\n{"value": "2"}\n')
    code, out, err = shale("load", str(tmp_path / "rows.json"), "--format", "json", "-u", url)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("shale: ")
    assert len(err.splitlines()) == 1, err
    assert data(shale("check", "-u", url))["executors"][0]["manifest_id"] == 0


def test_what_spark_says_is_one_line(shale: Shale, url: str) -> None:
    code, out, err = shale("load", "/nowhere/at/all", "-u", url)
    assert (code, out) == (ExitCode.ERROR, "")
    assert "/nowhere/at/all" in err
    assert len(err.splitlines()) == 1, err


def test_a_timeout_ends_the_command(shale: Shale, url: str, spark: SparkSession) -> None:
    code, _, err = shale("check", "--timeout", "1ms", "-u", url)
    assert code == ExitCode.TEMPFAIL, err
    assert "not done after 0.001 s" in err
    assert spark.range(3).count() == 3, "the session is not the command's to stop"
