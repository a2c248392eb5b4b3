"""Each policy allows what the table of rights says, on every kind of object, and nothing more."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deploy.policies.__main__ import main
from deploy.policies.generate import FOLDER, PAGE, policy_text, with_tables
from deploy.policies.roles import PREFIXES, ROLES, Operation, Place, Role
from deploy.policies.s3 import EXAMPLE, policy
from tests.integration.policies.server import PolicyServer, policy_server
from tests.integration.store.versitygw import needs_versitygw

BUCKETS = {location.split("/")[0] for location in EXAMPLE.values()}
ANSWERS = ("AccessDenied", "NoSuchKey", "NoSuchUpload", "PreconditionFailed")
FOREIGN = "bucket/payments"
"""Another database in the same bucket."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyServer]:
    with policy_server(tmp_path_factory.mktemp("s3"), *BUCKETS) as served:
        yield served


def is_allowed(call: Callable[[], Any]) -> bool:
    """Return whether a call is allowed, be it that the object does not exist."""
    try:
        answer = call()
    except ClientError as error:
        if (code := error.response["Error"]["Code"]) not in ANSWERS:
            raise
        return bool(code != "AccessDenied")
    assert {each["Code"] for each in answer.get("Errors", ())} <= {"AccessDenied"}
    return "Errors" not in answer


def allowed(client: Any, location: str, prefix: str) -> set[Operation]:
    """Return the operations that the server allows below a prefix; a put is one object, or parts."""
    bucket, path = location.split("/", 1)
    object_ = {"Bucket": bucket, "Key": f"{path}/{prefix}" + ("object" if prefix[-1] == "/" else "")}
    put = is_allowed(lambda: client.put_object(**object_, Body=b"", IfNoneMatch="*"))
    parts = is_allowed(lambda: client.create_multipart_upload(**object_))
    aborts = is_allowed(lambda: client.abort_multipart_upload(**object_, UploadId="0"))
    assert put == parts == aborts
    delete = is_allowed(lambda: client.delete_object(**object_))
    many = {"Objects": [{"Key": object_["Key"]}]}
    assert delete == is_allowed(lambda: client.delete_objects(Bucket=bucket, Delete=many))
    get = is_allowed(lambda: client.get_object(**object_))
    return {each for each, is_so in zip(Operation, (get, put, delete), strict=True) if is_so}


def lists(client: Any, location: str) -> bool:
    bucket, path = location.split("/", 1)
    return is_allowed(lambda: client.list_objects_v2(Bucket=bucket, Prefix=f"{path}/"))


@pytest.mark.slow
@needs_versitygw
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_policy_allows_what_the_table_says(server: PolicyServer, role: Role) -> None:
    client = server.client(server.add_user(role.name, policy(role)))
    found = {(place, each): allowed(client, EXAMPLE[place], each) for place in Place for each in PREFIXES}
    assert found == {(place, each): set(role.operations(each, place)) for place in Place for each in PREFIXES}
    assert {place for place in Place if lists(client, EXAMPLE[place])} == set(role.places())


@needs_versitygw
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_another_database_of_the_bucket_is_out_of_reach(server: PolicyServer, role: Role) -> None:
    client = server.client(server.add_user(f"{role.name}-beside", policy(role)))
    assert [each for each in PREFIXES if allowed(client, FOREIGN, each)] == []
    assert not lists(client, FOREIGN)
    assert not is_allowed(lambda: client.list_objects_v2(Bucket="bucket"))
    assert not is_allowed(lambda: client.delete_bucket(Bucket="bucket"))


@needs_versitygw
def test_nothing_is_allowed_without_a_policy(server: PolicyServer) -> None:
    client = server.client(server.add_user("none"))
    assert [each for each in PREFIXES if allowed(client, EXAMPLE[Place.DATABASE], each)] == []


def test_the_files_are_those_of_the_table() -> None:
    """``make gen`` was run after a change of the table."""
    assert {each.name: each.read_text() for each in FOLDER.iterdir()} == {
        f"{role.name}.json": policy_text(role) for role in ROLES
    }
    assert PAGE.read_text() == with_tables(PAGE.read_text())


def test_only_the_gc_and_a_destroyer_delete_objects_of_a_database() -> None:
    names = [each for each in PREFIXES if each != ".shale-preflight/"]
    deleting = {role.name for role in ROLES for each in names if Operation.DELETE in role.operations(each)}
    assert deleting == {"gc", "destroyer"}


def test_policies_are_small_enough() -> None:
    """A policy of a user at AWS has at most 2048 characters without spaces, a managed one 6144."""
    assert max(len(json.dumps(policy(role), separators=(",", ":"))) for role in ROLES) < 2048


def test_a_policy_for_several_roles_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["compactor", "worker", "--database", "s3://b/path/of/it"])
    printed = json.loads(capsys.readouterr().out)
    writable = next(each["Resource"] for each in printed["Statement"] if each["Action"][0] == "s3:PutObject")
    assert {"arn:aws:s3:::b/path/of/it/manifest/*", "arn:aws:s3:::b/path/of/it/compacted/*"} <= set(writable)
    with pytest.raises(SystemExit):
        main(["writer", "--database", "gs://bucket/orders"])
