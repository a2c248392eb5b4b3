"""``shale clone``, and the recipes of docs/how-to/clones.md as a user types them."""

import base64
import json
import re
import shlex
from pathlib import Path

import anyio
import pytest

from shale import Db
from tests.integration.cli.commands import answer, refusal, shale
from tests.integration.cli.goldens import Golden
from tests.integration.writer.writer_process import writer
from tests.paths import REPOSITORY

ROWS = {letter: f"value of {letter}" for letter in "aeikqw"}


@pytest.fixture
def store(tmp_path: Path) -> str:
    for key, value in ROWS.items():
        answer("kv", "put", key, value, "-u", f"file://{tmp_path}/orders")
    return f"file://{tmp_path}"


def rows(url: str, *options: str) -> dict[str, str]:
    lines = shale("kv", "scan", "-o", "jsonl", "-u", url, *options).stdout.decode().splitlines()
    found = [json.loads(line) for line in lines]
    return {base64.b64decode(row["key_b64"]).decode(): base64.b64decode(row["value_b64"]).decode() for row in found}


def test_create_prints_the_clone(golden: Golden, url: str) -> None:
    store, db = url.rsplit("/", 1)
    golden.check("clone-create", "clone", "create", "--source", db, "-u", f"{store}/copy")
    golden.check("clone-create.again", "create-clone", "--source", f"{store}/db", "-u", f"{store}/copy")


@pytest.mark.slow
def test_split_and_join_again(store: str) -> None:
    made = answer("clone", "create", "--source", "orders", "--range", "..k", "-u", f"{store}/left")
    assert made["is_new"]
    assert made["sources"][0]["path"] == "orders"
    assert made["wal_files_left_out"] == 0
    answer("clone", "create", "--source", f"{store}/orders", "--range", "k..", "-u", f"{store}/right")
    assert rows(f"{store}/left") == {key: value for key, value in ROWS.items() if key < "k"}
    assert rows(f"{store}/right") == {key: value for key, value in ROWS.items() if key >= "k"}
    answer("kv", "put", "b", "only in left", "-u", f"{store}/left")
    halves = ("--source", "left", "--source-range", "..k", "--source", "right", "--source-range", "k..")
    joined = answer("create-clone", *halves, "--compact-union", "-u", f"{store}/again", "-o", "table")
    assert joined["is_new"]
    assert rows(f"{store}/again") == ROWS | {"b": "only in left"}
    assert rows(f"{store}/orders") == ROWS


@pytest.mark.slow
def test_invalid_sources_and_ranges_are_refused(store: str) -> None:
    code, line = refusal("clone", "create", "--source", "left", "-u", f"{store}/new")
    assert (code, "left" in line) == (3, True)
    code, line = refusal("clone", "create", "--source", "orders", "-u", f"{store}/orders")
    assert (code, "same place" in line) == (2, True)
    code, line = refusal("clone", "create", "--source", "orders", "--range", "a", "-u", f"{store}/new")
    assert (code, "START..END" in line) == (2, True)
    for text in ("a...b", "m..a"):
        code, line = refusal("clone", "create", "--source", "orders", "--range", text, "-u", f"{store}/new")
        assert (code, "range" in line) == (2, True)
    unknown = "orders@00000000-0000-4000-8000-000000000000"
    code, line = refusal("clone", "create", "--source", unknown, "-u", f"{store}/new")
    assert (code, "00000000-0000-4000" in line) == (3, True)
    code, line = refusal("clone", "create", "--source", "s3://other/db", "-u", f"{store}/new")
    assert (code, "is not in" in line) == (2, True)


def test_a_log_in_a_store_of_its_own(tmp_path: Path) -> None:
    store, log = f"file://{tmp_path}/data", ("--wal-store", f"file://{tmp_path}/log")
    anyio.run(write_to_the_log, f"{store}/orders", log[1])
    code, line = refusal("clone", "create", "--source", "orders", "-u", f"{store}/copy")
    assert (code, "orders/wal/" in line) == (2, True)
    assert not (tmp_path / "data/copy").exists()
    made = answer("clone", "create", "--source", "orders", "-u", f"{store}/copy", *log)
    assert made["wal_files_copied"] == len([*(tmp_path / "log/copy/wal").iterdir()]) > 0
    assert rows(f"{store}/copy", *log) == {"a": "in L0", "b": "in the log"}


async def write_to_the_log(url: str, wal_store: str) -> None:
    db = await Db.open(url, wal_store=wal_store)
    await db.put(b"a", b"in L0")
    await db.flush("memtable")
    await db.put(b"b", b"in the log")
    await db.close(flush="wal")


@pytest.mark.slow
def test_the_recipes_of_the_page(tmp_path: Path) -> None:
    """Every command of docs/how-to/clones.md runs, in order."""
    store = f"file://{tmp_path}"
    for key in "amz":
        answer("kv", "put", key, f"value of {key}", "-u", f"{store}/orders")
    blocks = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs/how-to/clones.md").read_text(), re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    assert len(commands) == 7
    for line in commands:
        program, *arguments = shlex.split(line.replace("$STORE", store))
        assert program == "shale"
        answer(*arguments)
    all_rows = {key: f"value of {key}" for key in "amz"}
    assert rows(f"{store}/orders") == rows(f"{store}/orders-again") == rows(f"{store}/orders-test") == all_rows
    assert rows(f"{store}/orders-left") == {"a": "value of a"}
    assert rows(f"{store}/orders-right") == {"m": "value of m", "z": "value of z"}
    assert rows(f"{store}/orders-trial") == all_rows | {"a": "changed"}


@pytest.mark.slow
def test_a_source_is_named_with_a_checkpoint_by_its_name(store: str) -> None:
    kept = answer("checkpoint", "create", "-n", "nightly", "-u", f"{store}/orders")
    answer("kv", "put", "z", "unseen", "-u", f"{store}/orders")
    for source in ("orders@nightly", f"{store}/orders@nightly", f"orders@{kept['id']}"):
        name = f"copy-{len(source)}"
        again = [answer("clone", "create", "--source", source, "-u", f"{store}/{name}") for _ in range(2)]
        assert [each["is_new"] for each in again] == [True, False]
        assert [each["sources"] for each in again] == [[{"path": "orders", "checkpoint": kept["id"]}]] * 2
        assert rows(f"{store}/{name}") == ROWS
    code, line = refusal("clone", "create", "--source", "orders@weekly", "-u", f"{store}/new")
    assert (code, "no checkpoint is named 'weekly'" in line) == (3, True)
    twin = answer("checkpoint", "create", "-n", "nightly", "-u", f"{store}/orders")
    code, line = refusal("clone", "create", "--source", "orders@nightly", "-u", f"{store}/new")
    assert (code, kept["id"] in line, twin["id"] in line) == (2, True, True)


@pytest.mark.slow
def test_a_database_whose_path_looks_like_a_source_with_a_checkpoint(store: str) -> None:
    answer("kv", "put", "other", "one", "-u", f"{store}/orders@nightly")
    answer("checkpoint", "create", "-n", "nightly", "-u", f"{store}/orders")
    made = answer("clone", "create", "--source", "orders@nightly", "-u", f"{store}/copy")
    assert made["sources"][0]["path"] == "orders@nightly"
    assert rows(f"{store}/copy") == {"other": "one"}


@pytest.mark.slow
def test_a_live_database_is_cloned_whole_or_not_at_all(tmp_path: Path) -> None:
    """Of 20 durable rows the manifest knows ten."""
    store, expected = f"file://{tmp_path}/store", {f"k{number:02}": "v" for number in range(20)}
    with writer(tmp_path) as client:
        for number, key in enumerate(expected):
            assert client.put(key.encode(), b"v")[0] == 204
            if number == 9:
                client.daemon.request("POST", "/v1/admin/flush", port=client.admin_port)
        code, line = refusal("clone", "create", "--source", "orders", "-u", f"{store}/copy")
        assert (code, "rows that a clone would lack" in line) == (2, True)
        assert not (tmp_path / "store/copy").exists()
        gap = shale("clone", "create", "--source", "orders", "--allow-wal-gap", "-u", f"{store}/part")
        assert gap.returncode == 0
        assert b"rows that are not in the clone" in gap.stderr
        assert rows(f"{store}/part").items() < expected.items()
        asked = ("--writer-url", f"http://127.0.0.1:{client.admin_port}", "-u", f"{store}/copy")
        again = [answer("clone", "create", "--source", "orders", *asked) for _ in range(2)]
        assert [(each["is_new"], each["wal_files_left_out"]) for each in again] == [(True, 0), (False, 0)]
        assert rows(f"{store}/copy") == expected
        code, line = refusal("clone", "create", "--source", "orders", "--writer-url", "", *asked)
        assert (code, "2 addresses for 1 source" in line) == (2, True)
        code, line = refusal("clone", "create", "--source", "orders@nightly", *asked[:2], "-u", f"{store}/other")
        assert (code, "nightly" in line) == (2, True)
