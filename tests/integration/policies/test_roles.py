"""Each role does all of its work with the rights of its policy, and no request is refused."""

import contextlib
import json
import os
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import Daemon
from tests.integration.policies.identities import BACKUPS, BUCKET, Identities, wait_until
from tests.integration.policies.server import PolicyServer, policy_server
from tests.integration.store.versitygw import needs_versitygw

pytestmark = needs_versitygw

MEMTABLE_BYTES = 3 << 20
PARTS_BYTES = 9 << 20
"""More than one part of an upload."""
WRITER = (
    *("--port", "0", "--set", f"l0_sst_size_bytes={MEMTABLE_BYTES}", "--set", "flush_interval=0"),
    *("--set", "manifest_poll_interval=100ms"),
)
STANDBY = ("--standby", "--set", "standby.poll_interval=100ms", "--set", "standby.takeover_after=1500ms")
COMPACTOR = (
    *("--set", "compactor_options.poll_interval=100ms", "--set", "compactor_options.commit_compacted_interval=100ms"),
    *("--set", "compactor_options.worker.compactions_poll_interval=100ms"),
)
FOLLOWER = ("--port", "0", "--set", "follow_latest=true", "--set", "store.preflight=false")
INSPECTING = (
    *("verify --deep", "db info", "db size", "kv get tail", "gc plan", "manifest list", "compaction list"),
    *("checkpoint list", "wal list", "sst list"),
)
READER = ("--port", "0", "--set", "manifest_poll_interval=100ms")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyServer]:
    with policy_server(tmp_path_factory.mktemp("s3"), BUCKET, BACKUPS) as served:
        yield served


@pytest.fixture
def users(server: PolicyServer, tmp_path: Path) -> Iterator[Identities]:
    identities = Identities(server, tmp_path.name, tmp_path)
    yield identities
    # A source may be a path that has "@" in its name, so the command also looks there.
    assert [each for each in identities.refused() if "%40nightly%2F" not in each[2]] == []


def put(writer: Daemon, key: str, value: bytes = b"v", port: int | None = None) -> None:
    assert writer.request("PUT", f"/v1/kv/{key}", port=port or writer.port("port"), body=value)[0] == 204


def get(daemon: Daemon, key: str) -> bytes:
    return daemon.request("GET", f"/v1/kv/{key}", port=daemon.port("port"))[1]


def has_row(daemon: Daemon, key: str, port: int) -> bool:
    """Return whether a daemon serves a row; a standby may have no port yet."""
    with contextlib.suppress(urllib.error.URLError):
        return daemon.request("GET", f"/v1/kv/{key}", port=port)[0] == 200
    return False


def fill(users: Identities) -> None:
    """Write as many L0s as a compaction takes, and rows that are only in the WAL."""
    with users.daemon("writer", "shale_writer", *WRITER) as writer:
        for number in range(3):
            put(writer, f"k{number}", os.urandom(MEMTABLE_BYTES + 1))
        put(writer, "large", os.urandom(PARTS_BYTES))
        assert writer.request("POST", "/v1/admin/checkpoints", port=writer.port("admin_port"))[0] == 201
        put(writer, "tail")
        assert writer.stop() == 0


def compact(users: Identities) -> None:
    with (
        users.daemon("compactor", "shale_compactor", "--no-embedded-worker", *COMPACTOR) as coordinator,
        users.daemon("worker", "shale_compactor.worker", *COMPACTOR) as worker,
    ):
        coordinator.wait_for("compaction.committed")
        users.shale("operator", "compaction", "submit", "--full", "--wait")
        assert (coordinator.stop(), worker.stop()) == (0, 0)


def operations(users: Identities, role: str, folder: str) -> set[str]:
    """Return the operations of a role on the objects of a folder of the database."""
    path = users.url.removeprefix(f"s3://{BUCKET}/")
    of_role = [each for user, each in users.server.requests() if user == f"{path}.{role}"]
    return {each.operation for each in of_role if each.key.startswith(f"{path}/{folder}")}


def objects(users: Identities, folder: str = "") -> set[str]:
    """Return the keys of the objects of a folder of the database."""
    path = users.url.removeprefix(f"s3://{BUCKET}/")
    found = users.server.client().list_objects_v2(Bucket=BUCKET, Prefix=f"{path}/{folder}").get("Contents", [])
    return {each["Key"] for each in found}


@pytest.mark.slow
def test_the_life_of_a_database(users: Identities) -> None:
    fill(users)
    compact(users)
    assert {"s3_UploadPart", "s3_CompleteMultipartUpload"} <= operations(users, "worker", "compacted/")
    assert "s3_GetObject" not in operations(users, "compactor", "compacted/")
    for command in INSPECTING:
        users.shale("inspector", *command.split())
    assert not operations(users, "inspector", "") & {"s3_PutObject", "s3_DeleteObject", "s3_DeleteObjects"}
    fill(users)
    for each in json.loads(users.shale("inspector", "checkpoint", "list", "-o", "json"))["checkpoints"]:
        users.shale("operator", "checkpoint", "delete", each["id"], "--yes")
    before = {folder: objects(users, folder) for folder in ("manifest/", "wal/", "compacted/", "compactions/")}
    with users.daemon("gc", "shale_gc") as collector:
        collector.wait_for("daemon.ready")
        assert collector.stop() == 0
    for _ in range(2):  # the first pass may find SSTs in manifests that it deletes
        users.shale("gc", "gc", "run", "--yes", "--min-age", "0s")
    users.shale("gc", "gc", "run", "--yes", "-r", "wal_fence", "-r", "staged")
    assert [folder for folder, were in before.items() if not were - objects(users, folder)] == []
    assert "s3_GetObject" not in operations(users, "gc", "compacted/") | operations(users, "gc", "wal/")


@pytest.mark.slow
def test_a_standby_takes_over(users: Identities) -> None:
    with (
        users.daemon("writer", "shale_writer", *WRITER) as active,
        users.daemon("writer", "shale_writer", *WRITER, *STANDBY) as standby,
    ):
        port = int(standby.wait_for("standby.started")["port"])
        put(active, "before")
        active.process.kill()
        standby.wait_for("writer.promoted")
        wait_until(lambda: has_row(standby, "before", port))
        put(standby, "after", port=port)
        assert standby.stop() == 0


@pytest.mark.slow
def test_readers(users: Identities) -> None:
    fill(users)
    with (
        users.daemon("reader", "shale_reader", *READER) as reader,
        users.daemon("follower", "shale_reader", *FOLLOWER) as follower,
    ):
        assert (get(reader, "tail"), get(follower, "tail")) == (b"v", b"v")
        with users.daemon("writer", "shale_writer", *WRITER) as writer:
            put(writer, "new", os.urandom(MEMTABLE_BYTES + 1))
            wait_until(lambda: len(get(reader, "new")) > MEMTABLE_BYTES)
        assert (reader.stop(), follower.stop()) == (0, 0)
    assert "s3_PutObject" in operations(users, "reader", "manifest/")
    assert "s3_PutObject" not in operations(users, "follower", "")


@pytest.mark.slow
def test_backup_and_restore(users: Identities) -> None:
    fill(users)
    place = ("--backups", users.backups_url)
    users.shale("backup", "backup", "create", *place)
    users.shale("backup", "backup", "create", "--keep-wal", *place)
    users.shale("backup", "backup", "verify", "--deep", *place)
    users.shale("backup", "backup", "prune", "--keep", "1", "--yes", *place)
    assert len(json.loads(users.shale("backup", "backup", "list", *place, "-o", "json"))["backups"]) == 1
    users.shale("restore", "backup", "restore", *place, url=users.copy_url)
    users.shale("restore", "backup", "restore", "--in-place", "--yes", *place, url=users.copy_url)


@pytest.mark.slow
def test_clone_and_destruction(users: Identities) -> None:
    fill(users)
    path = users.url.removeprefix(f"s3://{BUCKET}/")
    users.shale("operator", "checkpoint", "create", "--name", "nightly")
    users.shale("cloner", "clone", "create", "--source", f"{path}@nightly", "--range", "k1..k2", url=users.copy_url)
    clone = users.clone()
    with clone.daemon("follower", "shale_reader", *FOLLOWER) as follower:
        assert len(get(follower, "k1")) > MEMTABLE_BYTES
    clone.shale("destroyer", "db", "destroy", "--soft", "--yes")
    clone.shale("gc", "gc", "run", "--yes", "--delete-grace-period", "0s")
    assert objects(clone) == set()
    users.shale("destroyer", "db", "destroy", "--yes", "--force")
    assert objects(users) == set()
    assert clone.refused() == []
