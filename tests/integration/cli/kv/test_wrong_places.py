"""Commands at a wrong place or with a wrong credential end with one line, also while requests are not answered."""

import json
from collections.abc import Iterator

import pytest

from shale_cli.framework import session
from tests.integration.cli.commands import program, refusal
from tests.integration.store.wrong_places import SCHEMES, endpoints

COMMANDS = [("kv", "get", "a"), ("kv", "put", "a", "b"), ("db", "info")]


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    with endpoints() as urls:
        yield urls


def environment(scheme: str, endpoint: str) -> dict[str, str]:
    match scheme:
        case "s3":
            return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "topsecret"}
        case "az":
            account = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "dG9wc2VjcmV0"}
            return {"AZURE_STORAGE_ENDPOINT": f"{endpoint}/account", **account}
        case _:
            keys = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({"gcs_base_url": endpoint, "disable_oauth": True, **keys})}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
@pytest.mark.parametrize(
    ("place", "code", "text"),
    [
        ("401", 77, "the store refused the credentials"),
        ("403", 77, "the store refused the credentials"),
        ("404", 3, "there is no such bucket"),
        ("refused", 69, "Connection refused"),
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_buckets(
    places: dict[str, str], scheme: str, place: str, code: int, text: str, command: tuple[str, ...]
) -> None:
    told, line = refusal(*command, "-u", f"{scheme}://some-bucket/db", **environment(scheme, places[place]))
    assert told == code
    assert text in line
    assert f"{scheme}://some-bucket" in line


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_a_server_that_accepts_and_never_answers(places: dict[str, str], command: tuple[str, ...]) -> None:
    """The command has its own limit here; its unanswered request does not keep its process alive."""
    arguments = ("--timeout", "1s", *command, "-u", "s3://some-bucket/db")
    ended = program(*arguments, timeout_s=25, **environment("s3", places["silent"]))
    assert ended.returncode == 69, "the request itself would end after 30 s"
    assert ended.stderr.decode().splitlines() == ["shale: s3://some-bucket/db: timed out after 1 s"]


def test_the_limit_of_a_request() -> None:
    """Not only of an open: ``db info`` opens nothing."""
    from shale.store.options import StoreOptions

    policy = session.limited(StoreOptions()).retry
    assert policy.fail_fast_auth
    assert policy.timeout_s == session.REQUEST_LIMIT_S


@pytest.mark.parametrize("scheme", SCHEMES)
def test_settings_that_cannot_be_right(scheme: str) -> None:
    if scheme == "gs":
        variables, text = {"GOOGLE_SERVICE_ACCOUNT": "/missing.json"}, "/missing.json"
    elif scheme == "az":
        variables, text = {}, "set account_name and account_key"
    else:
        variables, text = {"SHALE_STORE__ENDPOINT": "localhost:9000"}, "is not a URL: write http://localhost:9000"
    code, line = refusal("kv", "get", "a", "-u", f"{scheme}://some-bucket/db", **variables)
    assert code == 2
    assert text in line


def test_a_directory_that_cannot_be_written() -> None:
    code, line = refusal("kv", "put", "a", "b", "-u", "file:///proc/self/db")
    assert code == 77
    assert "file:///proc/self" in line
