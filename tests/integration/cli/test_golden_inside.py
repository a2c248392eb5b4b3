"""The JSON output of commands that show the objects of a database."""

from pathlib import Path

from tests.integration.cli.goldens import Golden


def test_the_database_as_a_whole(golden: Golden, url: str) -> None:
    golden.check("db-info", "db", "info", "-u", url)
    golden.check("db-size", "db", "size", "-u", url, volatile=("bytes",))


def test_the_log(golden: Golden, url: str) -> None:
    golden.check("wal-list", "wal", "list", "-u", url)
    golden.check("wal-rows", "wal", "rows", "--first", "1", "-u", url)
    golden.check("wal-tail", "wal", "tail", "--from", "earliest", "--once", "-u", url)


def test_ssts(golden: Golden, url: str) -> None:
    listed = golden.check("sst-list", "sst", "list", "-u", url)["ssts"]
    golden.check("sst-stats", "sst", "stats", listed[0]["id"], "-u", url)
    golden.check("sst-dump", "sst", "dump", listed[0]["id"], "-u", url)


def test_the_picture(golden: Golden, url: str, tmp_path: Path) -> None:
    text = golden.run("db", "info", "-u", url, "-o", "table")
    lines = text.splitlines()
    assert lines[0] == url
    assert lines[2] == "writer unknown: closed, or without a checkpoint"
    assert lines[4] == "2 SSTs, 172 B"
    assert [line[:5] for line in lines[7:]] == ["├─ L0", "└─ L0"]
    assert lines[7].endswith("90 B  ████████████████████")
    assert lines[8].endswith("82 B  ██████████████████")


def test_missing_objects_have_exit_code_3_and_write_nothing(golden: Golden, url: str, tmp_path: Path) -> None:
    for command in (["db", "info"], ["db", "size"], ["wal", "list"], ["wal", "rows"], ["wal", "tail"], ["sst", "list"]):
        golden.run(*command, "-u", f"file://{tmp_path}/none", code=3)
    golden.run("sst", "dump", "01JD4ZC8M7S5X4T2Q3W1E0R9YB", "-u", url, code=3)
    golden.run("sst", "stats", "nonsense", "-u", url, code=2)
    golden.run("sst", "list", "--manifest", "77", "-u", url, code=3)
    golden.run("wal", "rows", "--first", "0", "-u", url, code=2)
    golden.run("wal", "tail", "--from", "nonsense", "-u", url, code=2)
    assert not (tmp_path / "none").exists()


def test_rows_of_an_sst_can_be_chosen(golden: Golden, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    for key in ("a1", "a2", "b1"):
        golden.run("kv", "put", key, "v", "-u", url)
    newest = golden.run("sst", "list", "-u", url, "-o", "csv", "--columns", "id", "--no-headers").split()[0]
    dumped = golden.run("sst", "dump", newest, "-u", url, "-o", "csv", "--columns", "seq,kind,key", "--no-headers")
    assert dumped == "3,put,b1\n"
    assert golden.run("sst", "dump", newest, "--prefix", "a", "-u", url, "-o", "json") == ""
    assert golden.run("sst", "dump", newest, "--start", "b", "--stop", "b1", "-u", url, "-o", "json") == ""
    assert golden.run("sst", "dump", newest, "--limit", "0", "-u", url, "-o", "json") == ""
