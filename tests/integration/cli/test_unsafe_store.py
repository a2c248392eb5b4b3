"""A server that ignores conditional headers is reported by the doctor and by every daemon."""

import json
from collections.abc import Iterator

import pytest

from tests.integration.cli.commands import shale
from tests.integration.store.servers import s3_server


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with s3_server("liar", "--ignore-conditions") as endpoint:
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
        }


@pytest.mark.slow
def test_the_doctor_says_no(environment: dict[str, str]) -> None:
    result = shale("doctor", "--store", "s3://liar", "-o", "json", **environment)
    assert result.returncode == 4
    failed = {each["check"] for each in json.loads(result.stdout)["checks"] if each["result"] == "failed"}
    assert failed == {"create-conflict", "create-race", "update-stale", "update-race"}
    assert b"s3://liar: create-conflict: expected a create over an object conflicts, saw" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["writer", "compactor", "gc"])
def test_daemons_refuse_it(daemon: str, environment: dict[str, str]) -> None:
    result = shale(daemon, "-u", "s3://liar/db", "--admin-port", "0", **environment)
    assert result.returncode == 81, result.stderr.decode()
    assert b"create-conflict" in result.stderr
    listing = shale("manifest", "list", "-u", "s3://liar/db", **environment)
    assert listing.returncode == 3, "the daemon wrote to it"
