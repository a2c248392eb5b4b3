"""The policies of docs/how-to/s3.md allow what each process does, and nothing more than the page tells."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemons.daemon_process import running
from tests.integration.store.policy_server import Access, is_allowed, policy_server
from tests.integration.store.servers import s3_server
from tests.paths import PYTHONPATH, REPOSITORY
from tests.processes.forks import run

URL = "s3://bucket/orders"
GC, WRITER, READER, FOLLOWER = "gc", "writer", "reader", "follower"
DAEMONS = [
    ("shale_writer", WRITER, ("--port", "0")),
    ("shale_compactor", WRITER, ("--take-over",)),
    ("shale_compactor.worker", WRITER, ()),
    ("shale_gc", GC, ()),
    ("shale_reader", READER, ("--port", "0")),
    ("shale_reader", FOLLOWER, ("--port", "0", "--set", "follow_latest=true")),
]


def policies() -> dict[str, Any]:
    page = (REPOSITORY / "docs/how-to/s3.md").read_text()
    found = re.findall(r"^### Policy of [^\n]*\n(?:(?!^###).)*?```json\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    return dict(zip((GC, WRITER, READER, FOLLOWER), map(json.loads, found), strict=True))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, list[str]]]:
    denied: list[str] = []
    clone = [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::bucket/copy/*"}]
    listing = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bucket",
               "Condition": {"StringLike": {"s3:prefix": "copy/*"}}}  # fmt: skip
    cloner = {"Statement": [*policies()[READER]["Statement"], *clone, listing]}
    with s3_server("bucket") as endpoint, policy_server(endpoint, policies() | {"cloner": cloner}, denied) as url:
        yield url, denied


def variables(endpoint: str, role: str) -> dict[str, str]:
    keys = {"SHALE_STORE__ACCESS_KEY_ID": role, "SHALE_STORE__SECRET_ACCESS_KEY": "secret"}
    return {"SHALE_STORE__ENDPOINT": endpoint, "SHALE_STORE__REGION": "us-east-1", **keys}


def shale(endpoint: str, role: str, *arguments: str, url: str = URL, folder: Path) -> str:
    env = {"PYTHONPATH": PYTHONPATH, **variables(endpoint, role)}
    done = run("shale_cli", *arguments, "-u", url, env=env, folder=folder, is_strict=True, timeout_s=60)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout.decode()


def test_each_process_does_its_work_with_its_policy(served: tuple[str, list[str]], tmp_path: Path) -> None:
    endpoint, denied = served
    for number, (module, role, options) in enumerate(DAEMONS):
        log = tmp_path / f"{number}"
        with running(module, "--url", URL, *options, log=log, env=variables(endpoint, role)) as daemon:
            daemon.wait_for("daemon.ready")
            if module == "shale_writer":
                assert daemon.request("PUT", "/v1/kv/k", port=daemon.port("port"), body=b"v")[0] == 204
            assert daemon.stop() == 0, log.read_text()
        assert denied == [], (module, role)
    shale(endpoint, GC, "gc", "run", "--yes", "--min-age", "0s", folder=tmp_path)
    for arguments in (["kv", "get", "k"], ["db", "info"], ["verify"], ["gc", "plan"], ["checkpoint", "list"]):
        shale(endpoint, FOLLOWER, *arguments, folder=tmp_path)
    assert denied == []


def test_doctor_writes_where_daemons_do(served: tuple[str, list[str]], tmp_path: Path) -> None:
    endpoint, denied = served
    assert '"create-race"' in shale(endpoint, READER, "doctor", "--fast", folder=tmp_path)
    assert denied == []


def test_the_source_of_a_clone_is_found_without_rights_beside_it(served: tuple[str, list[str]], tmp_path: Path) -> None:
    endpoint, denied = served
    shale(endpoint, WRITER, "kv", "put", "k", "v", folder=tmp_path)
    shale(endpoint, READER, "checkpoint", "create", "--name", "nightly", folder=tmp_path)
    shale(endpoint, "cloner", "clone", "create", "--source", "orders@nightly", url="s3://bucket/copy", folder=tmp_path)
    assert [json.loads(each)[1:] for each in denied] == [["s3:ListBucket", "bucket", "orders@nightly/manifest/"]]
    denied.clear()


def test_a_refused_delete_is_told_at_once(served: tuple[str, list[str]], tmp_path: Path) -> None:
    endpoint, denied = served
    for value in ("1", "2", "3"):
        shale(endpoint, WRITER, "kv", "put", "k", value, folder=tmp_path)
    command = ["gc", "run", "--yes", "--min-age", "0s", "-r", "manifest", "-u", URL]
    env = {"PYTHONPATH": PYTHONPATH, **variables(endpoint, WRITER)}
    done = run("shale_cli", *command, env=env, folder=tmp_path, is_strict=True, timeout_s=60)
    assert done.returncode == 77, done.stderr
    assert b"the store refused the credentials" in done.stderr
    assert {json.loads(each)[1] for each in denied} == {"s3:DeleteObject"}
    assert len(denied) <= len(set(denied)) + 2, "they are not tried again and again"
    denied.clear()


@pytest.mark.parametrize(
    ("role", "action", "key"),
    [
        (WRITER, "s3:DeleteObject", "orders/manifest/1"),
        (READER, "s3:PutObject", "orders/compacted/1"),
        (READER, "s3:DeleteObject", "orders/manifest/1"),
        (FOLLOWER, "s3:PutObject", "orders/manifest/1"),
        *((role, "s3:GetObject", "payments/manifest/1") for role in (GC, WRITER, READER, FOLLOWER)),
    ],
)
def test_what_a_policy_does_not_allow(role: str, action: str, key: str) -> None:
    assert not is_allowed(policies()[role], Access(action, f"bucket/{key}"))
    assert not is_allowed(policies()[role], Access("s3:ListBucket", "bucket", "payments/"))


def grants(policy: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each action of a policy with its resource."""
    for statement in policy["Statement"]:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            yield action, statement["Resource"].removeprefix("arn:aws:s3:::")


@pytest.mark.parametrize(
    ("page", "pattern"), [("gcs.md", r"objects/(orders/[\w.-]+/)"), ("azure.md", r"'(orders/[^*]+)\*'")]
)
def test_the_conditions_of_other_clouds_name_the_paths_that_a_reader_writes(page: str, pattern: str) -> None:
    found = set(re.findall(pattern, (REPOSITORY / "docs/how-to" / page).read_text()))
    writes = {resource for action, resource in grants(policies()[READER]) if action == "s3:PutObject"}
    assert found == {each.removeprefix("bucket/").removesuffix("*") for each in writes}
