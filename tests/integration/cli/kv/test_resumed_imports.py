"""Imports that go on: what an interrupted import had written, and what its notes say."""

import json
import os
from pathlib import Path
from socket import gethostname

import anyio
import pytest

from shale.engine.db import Db
from tests.integration.cli.commands import shale
from tests.integration.cli.goldens import Golden, parsed


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


def note(file: Path, url: str, rows: int, options: str | None = None) -> None:
    """Write the notes of an import that was killed."""
    found = file.stat()
    notes = {
        "database": url,
        "options": options or "--format ndjson --key key --value value --key-format utf8",
        "bytes": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "rows": rows,
        "epoch": 1,
        "pid": os.getpid(),
        "host": gethostname(),
    }
    file.with_name(f"{file.name}.import").write_text(json.dumps(notes))


def write_lines(file: Path, *rows: tuple[str, str]) -> None:
    file.write_text("".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in rows))


def get(golden: Golden, url: str, key: str) -> str:
    return golden.run("kv", "get", key, "--raw", "-u", url)


def test_the_last_row_of_a_key_wins_although_it_was_durable(golden: Golden, url: str, tmp_path: Path) -> None:
    """The row before it differs from the stored one, and must not be written after it."""
    file = tmp_path / "rows.ndjson"
    write_lines(file, ("a", "old"), ("a", "new"), ("b", "1"), ("c", "1"), ("c", "2"))
    golden.run("kv", "put", "a", "new", "-u", url)
    note(file, url, 0)
    report = parsed(golden.run("kv", "import", str(file), "--resume", "-u", url, "-o", "json"))
    assert (report["found"], report["rows"]) == (2, 3)
    assert [get(golden, url, key) for key in "abc"] == ["new", "1", "2"]


def test_a_row_with_another_lifetime_is_written(golden: Golden, url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    write_lines(file, ("a", "1"))

    async def put() -> None:
        async with Db.open(url) as db:
            await db.put(b"a", b"1", ttl="1h")

    anyio.run(put)
    note(file, url, 0)
    report = parsed(golden.run("kv", "import", str(file), "--resume", "-u", url, "-o", "json"))
    assert report["found"] == 0
    assert parsed(golden.run("kv", "get", "a", "-u", url, "-o", "json"))["expire_ms"] is None


def test_notes_of_other_options_are_refused(url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("k,v,w\na,1,2\n")
    note(file, url, 1, "--format csv --key k --value v --key-format utf8")
    refused = shale("kv", "import", str(file), "--resume", "--key", "k", "--value", "w", "-u", url)
    assert refused.returncode == 2
    assert b"it is of an import with --format csv --key k --value v --key-format utf8: give the same" in refused.stderr
    other = shale("kv", "import", str(file), "--resume", "--key", "k", "--value", "v", "-u", f"{url}2")
    assert f"it is of an import into {url}: name that database".encode() in other.stderr
    same = shale("kv", "import", str(file), "--resume", "--key", "k", "--value", "v", "-u", url)
    assert json.loads(same.stdout)["skipped"] == 1


def test_a_changed_file_tells_where_to_go_on(url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    write_lines(file, ("a", "1"), ("b", "2"))
    note(file, url, 1)
    write_lines(file, ("a", "1"), ("b", "20"))
    refused = shale("kv", "import", str(file), "--resume", "-u", url)
    assert refused.returncode == 2
    assert b"has changed since: give --skip instead of --resume, --skip 1 if it still begins with" in refused.stderr


def test_a_mistake_in_the_middle_tells_how_many_rows_are_durable(golden: Golden, url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = ["key,value", *(f"k{number:05},v" for number in range(2500))]
    file.write_text("\n".join([*lines[:2301], "nonsense", *lines[2301:]]))
    refused = shale("kv", "import", str(file), "-u", url)
    assert refused.returncode == 2
    assert b"line 2302: 1 fields, the first line names 2; imported 2000 rows before it: correct it" in refused.stderr
    file.write_text("\n".join(lines))
    report = parsed(golden.run("kv", "import", str(file), "--skip", "2000", "-u", url, "-o", "json"))
    assert report["rows"] == 500
    assert json.loads(golden.run("kv", "scan", "--count", "-u", url, "-o", "json"))["rows"] == 2500
