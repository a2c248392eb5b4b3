"""Checkpoints, differences of manifests and sequence numbers from the command line."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.integration.cli.goldens import Golden


def made(golden: Golden, *arguments: str) -> Any:
    return json.loads(golden.run(*arguments, "-o", "json"))


def test_the_life_of_a_checkpoint(golden: Golden, url: str) -> None:
    wanted = str(uuid4())
    created = golden.check(
        "checkpoint-create", "checkpoint", "create", "-n", "nightly", "-l", "7days 30min", "--id", wanted, "-u", url
    )
    assert created["expire_ms"] - created["create_ms"] in (606_600_000, 606_601_000)
    assert made(golden, "checkpoint", "create", "--id", wanted, "-u", url) == {**created}
    copy = golden.check("checkpoint-create.source", "checkpoint", "create", "-s", wanted, "-u", url)
    golden.check("checkpoint-list", "checkpoint", "list", "-u", url)
    assert [each["id"] for each in made(golden, "checkpoint", "list", "-n", "", "-u", url)["checkpoints"]] == [
        copy["id"]
    ]
    golden.check("checkpoint-refresh", "checkpoint", "refresh", copy["id"], "-l", "1h", "-u", url)
    golden.check("checkpoint-delete.dry", "checkpoint", "delete", copy["id"], "--dry-run", "-u", url)
    assert len(made(golden, "checkpoint", "list", "-u", url)["checkpoints"]) == 2
    golden.check("checkpoint-delete", "checkpoint", "delete", copy["id"], "--yes", "-u", url)
    golden.check("checkpoint-delete.absent", "checkpoint", "delete", copy["id"], "--yes", "-u", url)
    assert [each["id"] for each in made(golden, "checkpoint", "list", "-u", url)["checkpoints"]] == [wanted]


def test_what_only_a_checkpoint_keeps_is_told_before_it_goes(golden: Golden, url: str) -> None:
    wanted = made(golden, "checkpoint", "create", "-u", url)["id"]
    first = made(golden, "checkpoint", "delete", wanted, "-u", url)
    assert (first["deleted"], first["frees"]) == (False, {"ssts": 0, "bytes": 0})


def test_mistakes(golden: Golden, url: str, tmp_path: Path) -> None:
    before = golden.run("manifest", "list", "-u", url)
    golden.run("checkpoint", "create", "-l", "soon", "-u", url, code=2)
    golden.run("checkpoint", "create", "-l", "0s", "-u", url, code=2)
    golden.run("checkpoint", "create", "-l", "200y", "-u", url, code=2)
    golden.run("checkpoint", "create", "-s", "nightly", "-u", url, code=3)
    golden.run("checkpoint", "create", "-s", "", "-u", url, code=2)
    golden.run("checkpoint", "create", "-n", "\udcff", "-u", url, code=2)
    golden.run("checkpoint", "create", "-n", "writer:7", "-u", url, code=2)
    golden.run("checkpoint", "refresh", "nightly", "-u", url, code=3)
    golden.run("checkpoint", "create", "-s", str(uuid4()), "-u", url, code=3)
    golden.run("checkpoint", "refresh", str(uuid4()), "-u", url, code=3)
    golden.run("checkpoint", "delete", "nightly", "--yes", "-u", url, code=3)
    golden.run("checkpoint", "delete", str(uuid4()), "--yes", "--dry-run", "-u", url)
    assert golden.run("manifest", "list", "-u", url) == before
    for verb in (["list"], ["create"], ["refresh", str(uuid4())], ["delete", str(uuid4()), "--yes"]):
        golden.run("checkpoint", *verb, "-u", f"file://{tmp_path}/none", code=3)
    assert not (tmp_path / "none").exists()


def test_names_stand_for_ids(golden: Golden, url: str) -> None:
    first = made(golden, "checkpoint", "create", "-n", "nightly", "-u", url)
    assert made(golden, "checkpoint", "create", "-s", "nightly", "-u", url)["manifest_id"] == first["manifest_id"]
    assert made(golden, "checkpoint", "refresh", "nightly", "-l", "1h", "-u", url)["id"] == first["id"]
    golden.run("kv", "put", "later", "unseen", "-u", url)
    assert golden.run("kv", "scan", "--checkpoint", "nightly", "-u", url) == golden.run(
        "kv", "scan", "--checkpoint", first["id"], "-u", url
    )
    assert made(golden, "verify", "--checkpoint", "nightly", "-u", url)["is_sound"]
    second = made(golden, "checkpoint", "create", "-n", "nightly", "-u", url)
    for command in (
        ("checkpoint", "delete", "nightly", "--yes"),
        ("checkpoint", "refresh", "nightly"),
        ("checkpoint", "create", "-s", "nightly"),
        ("kv", "get", "a", "--checkpoint", "nightly"),
        ("verify", "--checkpoint", "nightly"),
        ("delete-checkpoint", "-i", "nightly"),
    ):
        said = golden.refused(*command, "-u", url, code=2)
        assert first["id"] in said
        assert second["id"] in said
    golden.run("checkpoint", "delete", first["id"], "--yes", "-u", url)
    assert made(golden, "checkpoint", "delete", "nightly", "--yes", "-u", url)["id"] == second["id"]
    golden.run("kv", "scan", "--checkpoint", "nightly", "-u", url, code=3)


def test_a_checkpoint_whose_version_is_gone_can_be_deleted(golden: Golden, url: str, tmp_path: Path) -> None:
    """Until it is deleted, no collector deletes anything."""
    lost = made(golden, "checkpoint", "create", "-u", url)
    other = made(golden, "checkpoint", "create", "-u", url)
    (folder,) = tmp_path.rglob("manifest")
    (folder / f"{lost['manifest_id']:020}.manifest").unlink()
    told = made(golden, "checkpoint", "delete", other["id"], "--dry-run", "-u", url)
    assert (told["deleted"], told["frees"]) == (False, {"ssts": None, "bytes": None})
    assert made(golden, "checkpoint", "delete", lost["id"], "--yes", "-u", url)["deleted"]
    told = made(golden, "checkpoint", "delete", other["id"], "--yes", "-u", url)
    assert (told["deleted"], told["frees"]) == (True, {"ssts": 0, "bytes": 0})


def test_slatedbs_names_act_at_once_and_print_json(golden: Golden, url: str) -> None:
    created = json.loads(golden.run("create-checkpoint", "-l", "1M", "-n", "monthly", "-u", url, "-o", "table"))
    assert created["expire_ms"] - created["create_ms"] in (2_630_016_000, 2_630_017_000)
    copied = json.loads(golden.run("create-checkpoint", "-s", created["id"], "-u", url))
    assert copied["manifest_id"] == created["manifest_id"]
    assert json.loads(golden.run("refresh-checkpoint", "-i", created["id"], "-u", url))["state"] == "no_expiry"
    named = json.loads(golden.run("list-checkpoints", "-n", "monthly", "-u", url))["checkpoints"]
    assert [each["id"] for each in named] == [created["id"]]
    assert json.loads(golden.run("delete-checkpoint", "-i", created["id"], "-u", url))["deleted"] is True
    assert json.loads(golden.run("delete-checkpoint", "-i", created["id"], "-u", url))["deleted"] is False
    golden.run("refresh-checkpoint", "-i", created["id"], "-u", url, code=3)
    assert json.loads(golden.run("read-manifest", "-i", "3", "-u", url))["id"] == 3
    listed = json.loads(golden.run("list-manifests", "-s", "2", "-e", "4", "-u", url))["versions"]
    assert [each["id"] for each in listed] == [2, 3]
    assert listed[1]["manifest"] == json.loads(golden.run("read-manifest", "-i", "3", "-u", url))["manifest"]
    assert json.loads(golden.run("list-manifests", "-s", "9", "-e", "9", "-u", url))["versions"] == []


def test_differences(golden: Golden, url: str) -> None:
    golden.check("manifest-diff", "manifest", "diff", "1", "-u", url, volatile=("before", "after"))
    golden.run("checkpoint", "create", "-n", "x", "-u", url)
    (change,) = made(golden, "manifest", "diff", "-u", url)["changes"]
    assert (change["change"], change["what"], change["before"]) == ("added", "checkpoint", None)
    assert change["after"].endswith("for ever, x")
    golden.run("manifest", "diff", "1", "99", "-u", url, code=3)
    golden.run("manifest", "diff", "0", "-u", url, code=3)


def test_sequence_numbers_and_times(golden: Golden, url: str) -> None:
    when = golden.check("seq-to-time", "seq", "to-time", "1", "-u", url)
    assert golden.check("seq-from-time", "seq", "from-time", when["time"], "-u", url)["seq"] >= 1
    assert json.loads(golden.run("seq-to-ts", "1", "-u", url))["time_ms"] == when["time_ms"]
    seconds = str(when["time_ms"] // 1000)
    assert json.loads(golden.run("ts-to-seq", seconds, "--round", "up", "-u", url))["seq"] >= 1
    golden.run("seq", "from-time", "2001-01-01T00:00:00Z", "-u", url, code=3)
    golden.run("seq", "to-time", "999999", "--round", "up", "-u", url, code=3)
    for wrong in ("yesterday", "2026-01-01T00:00:00", "9" * 30):
        golden.run("seq", "from-time", wrong, "-u", url, code=2)
