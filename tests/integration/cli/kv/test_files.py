"""Export of rows to files and import: also times, binary keys, several parts, and after an interruption."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from shale.engine.db import Db
from shale.errors import InvalidRequestError
from shale_cli.commands.kv import row_export
from tests.integration.cli.goldens import Golden, parsed

KEYS = [b"\x00", b"\x00\xff", "ü€😀".encode(), b"a\nb", bytes(range(256)), b"plain"]


@pytest.fixture
def full(tmp_path: Path) -> str:
    """Create 2,500 small rows, some with a lifetime, and the keys above."""
    url = f"file://{tmp_path}/full"

    async def fill() -> None:
        async with Db.open(url) as db:
            batch = db.new_batch()
            for number in range(2500):
                batch.put(b"row/%05d" % number, b"v" * (number % 7), ttl="1h" if number % 3 else None)
            for key in KEYS:
                batch.put(key, key[::-1])
            await (await db.write(batch)).durable()

    anyio.run(fill)
    return url


def rows_of(golden: Golden, url: str) -> list[dict[str, Any]]:
    """Return the output of a scan, without the fields that a second write must change."""
    found = [json.loads(line) for line in golden.run("kv", "scan", "-u", url, "-o", "json").splitlines()]
    return [{name: row[name] for name in ("key_b64", "value_b64", "expire_ms")} for row in found]


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.parquet"])
def test_there_and_back(golden: Golden, full: str, tmp_path: Path, name: str) -> None:
    file, other = str(tmp_path / name), f"file://{tmp_path}/other"
    exported = parsed(golden.run("kv", "export", file, "-u", full, "-o", "json"))
    assert exported["rows"] == 2506
    assert not (tmp_path / f"{name}.partial").exists()
    imported = parsed(golden.run("kv", "import", file, "-u", other, "-o", "json"))
    assert (imported["rows"], imported["expired"]) == (2506, 0)
    assert rows_of(golden, other) == rows_of(golden, full)
    golden.run("kv", "export", file, "-u", full, code=2)


def test_a_part_can_be_exported(golden: Golden, full: str, tmp_path: Path) -> None:
    file = str(tmp_path / "rows.ndjson")
    golden.run("kv", "export", file, "--prefix", "row/000", "--start", "row/00050", "-u", full)
    keys = [base64.b64decode(json.loads(line)["key_b64"]) for line in Path(file).read_bytes().splitlines()]
    assert keys == [b"row/%05d" % number for number in range(50, 100)]


@pytest.mark.parametrize("cut", [0, 1, 60, 50_000, -1])
def test_an_export_goes_on_where_it_stopped(
    golden: Golden, full: str, tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, partial = tmp_path / "rows.ndjson", tmp_path / "rows.ndjson.partial"
    golden.run("kv", "export", str(file), "-u", full)
    whole = file.read_bytes()
    file.unlink()
    monkeypatch.setattr(row_export, "TAIL_BYTES", 16)
    partial.write_bytes(whole[:cut])
    golden.run("kv", "export", str(file), "-u", full, code=2)
    golden.run("kv", "export", str(file), "--resume", "-u", full)
    assert file.read_bytes() == whole
    assert not partial.exists()


def test_an_import_goes_on_where_it_stopped(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, url = tmp_path / "rows.ndjson", f"file://{tmp_path}/db"
    lines = [json.dumps({"key": f"k{number:05}", "value": "v"}) for number in range(2500)]
    file.write_text("\n".join([*lines[:2200], "nonsense", *lines[2200:]]))
    golden.run("kv", "import", str(file), "-u", url, code=2)
    assert len(rows_of(golden, url)) == 2000, "whole batches before the mistake are there"
    file.write_text("\n".join(lines))
    imported = parsed(golden.run("kv", "import", str(file), "--skip", "2000", "-u", url, "-o", "json"))
    assert imported["rows"] == 500
    assert len(rows_of(golden, url)) == 2500


def test_lines_that_people_write(golden: Golden, tmp_path: Path) -> None:
    file, url = tmp_path / "rows", f"file://{tmp_path}/db"
    file.write_text('{"key": "00ff", "value": "0a"}\n\n{"key_b64": "YQ==", "value": "", "expire_ms": 1}\n')
    imported = parsed(golden.run("kv", "import", str(file), "--key-format", "hex", "-u", url, "-o", "json"))
    assert (imported["rows"], imported["expired"]) == (1, 1)
    assert golden.run("kv", "get", "00ff", "--key-format", "hex", "--raw", "-u", url) == "\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "not an object"),
        ('{"key": "a"}', "value_b64 or value is missing"),
        ('{"key_b64": "?", "value": "1"}', "line 1"),
        ('{"key": "a", "value": "1", "expire_ms": "soon"}', "expire_ms"),
        ('{"key": "", "value": "1"}', "key of 0 bytes"),
    ],
)
def test_lines_that_are_refused(
    golden: Golden, tmp_path: Path, line: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows"
    file.write_text(line)
    told: list[str] = []
    monkeypatch.setattr("shale_cli.framework.session.print_error", told.append)
    golden.run("kv", "import", str(file), "-u", f"file://{tmp_path}/db", code=2)
    assert reason in told[0]


def test_files_that_are_refused(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("kv", "import", str(tmp_path / "none"), "-u", url, code=2)
    golden.run("kv", "export", str(tmp_path / "none/rows"), "-u", url, code=2)
    golden.run("kv", "export", "-", "--format", "parquet", "-u", url, code=2)
    golden.run("kv", "export", str(tmp_path / "a.parquet"), "--resume", "-u", url, code=2)
    golden.run("kv", "export", str(tmp_path / "a"), "--resume", "-u", url, code=2)
    (tmp_path / "a.partial").write_text("nonsense\n")
    golden.run("kv", "export", str(tmp_path / "a"), "--resume", "-u", url, code=2)
    (tmp_path / "bad.parquet").write_text("nonsense")
    golden.run("kv", "import", str(tmp_path / "bad.parquet"), "-u", url, code=2)
    with pytest.raises(InvalidRequestError):
        row_export.target(tmp_path / "a", "ndjson", resume=False)


def test_json(golden: Golden, url: str, tmp_path: Path) -> None:
    file = str(tmp_path / "rows.ndjson")
    golden.check("kv-export", "kv", "export", file, "-u", url)
    golden.check("kv-import", "kv", "import", file, "-u", url)
    golden.check("kv-delete.dry-run", "kv", "delete", "--prefix", "a", "-u", url)
    assert len(rows_of(golden, url)) == 2
    golden.check("kv-delete.prefix", "kv", "delete", "--prefix", "a", "--yes", "-u", url)
    assert len(rows_of(golden, url)) == 1
    golden.run("kv", "delete", "a", "--prefix", "a", "-u", url, code=2)
    golden.run("kv", "delete", "--prefix", "a", "--yes", "--dry-run", "-u", url, code=2)
    golden.run("kv", "delete", "-u", url, code=2)
    golden.check("scan", "scan", "--from", "0x62", "--max-keys", "1", "-u", url)
    golden.check("scan.count", "scan", "--prefix", "62", "--key", "hex", "--count", "-u", url)
    golden.run("scan", "--prefix", "b", "--from", "b", "-u", url, code=2)
    golden.run("scan", "--key", "nonsense", "-u", url, code=2)


def test_operands_are_folded_by_the_operator_of_the_settings(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = f"file://{tmp_path}/counts", str(tmp_path / "rows.ndjson")

    async def fill() -> None:
        async with Db.open(url, merge_operator="concatenate") as db:
            await db.merge(b"a", b"1")
            await (await db.merge(b"a", b"2")).durable()

    anyio.run(fill)
    monkeypatch.setenv("SHALE_MERGE_OPERATOR", "concatenate")
    assert golden.run("kv", "get", "a", "--raw", "-u", url) == "12"
    golden.run("kv", "export", file, "-u", url)
    assert b'"value_b64":"MTI="' in Path(file).read_bytes()
    golden.run("kv", "delete", "--prefix", "a", "--yes", "-u", url)
    golden.run("kv", "get", "a", "-u", url, code=3)


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_without_pyarrow_no_file_is_begun(format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of an interrupted export would stop the next one, after pyarrow was installed."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "shale_cli.commands.kv.row_arrow", raising=False)
    with pytest.raises(InvalidRequestError, match=r"pip install 'shale\[arrow\]'"):
        row_export.target(tmp_path / "rows", format_, resume=False)
