"""versitygw with its IAM server: an S3 server that enforces a policy for each access key."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import boto3

from tests.integration.store.servers import SECRET, child_process, wait_for_port
from tests.integration.store.versitygw import find_versitygw, require_attributes
from tests.ports import free_port

REGION = "us-east-1"
_REQUEST = re.compile(r"^\S+ \S+ \[[^\]]*\] \S+ (\S+) \S+ (\S+) (\S+) (\S+) (\d+) ")


class Request(NamedTuple):
    """One request of the server's access log."""

    access_key: str
    operation: str
    key: str
    target: str
    status: int


class PolicyServer:
    """A server whose users have the rights of their policies, and no others.

    Args:
        endpoint: the URL of S3.
        iam_endpoint: the URL of the API of users and policies.
        log: the access log.
    """

    def __init__(self, endpoint: str, iam_endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._log = log
        self._iam = self._client("iam", iam_endpoint, SECRET, SECRET)
        self._users: dict[str, str] = {}  # names of users by their access key

    def add_user(self, name: str, *policies: Mapping[str, Any]) -> dict[str, str]:
        """Make a user with policies; return the variables with which a process of Shale is that user."""
        self._iam.create_user(UserName=name)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        for number, policy in enumerate(policies):
            self._iam.put_user_policy(UserName=name, PolicyName=f"rights{number}", PolicyDocument=json.dumps(policy))
        self._users[key["AccessKeyId"]] = name
        return {
            "SHALE_STORE__ENDPOINT": self.endpoint,
            "SHALE_STORE__REGION": REGION,
            "SHALE_STORE__ACCESS_KEY_ID": key["AccessKeyId"],
            "SHALE_STORE__SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }

    def client(self, variables: Mapping[str, str] | None = None) -> Any:
        """Return a client of S3: of a user, or one that may do everything."""
        user = variables or {}
        key = user.get("SHALE_STORE__ACCESS_KEY_ID", SECRET)
        return self._client("s3", self.endpoint, key, user.get("SHALE_STORE__SECRET_ACCESS_KEY", SECRET))

    def requests(self) -> list[tuple[str, Request]]:
        """Return the requests of users so far, with the name of the user."""
        found = [match for line in self._log.read_text().splitlines() if (match := _REQUEST.match(line))]
        requests = [Request(*match.groups()[:4], int(match[5])) for match in found]
        return [(self._users[each.access_key], each) for each in requests if each.access_key in self._users]

    def refused(self) -> list[tuple[str, str, str]]:
        """Return the requests that no policy allows: user, operation and target."""
        return [(user, each.operation, each.target) for user, each in self.requests() if each.status == 403]

    @staticmethod
    def _client(service: str, url: str, key: str, secret: str) -> Any:
        access = {"aws_access_key_id": key, "aws_secret_access_key": secret, "region_name": REGION}
        return boto3.client(service, endpoint_url=url, **access)


@contextmanager
def policy_server(folder: Path, *buckets: str) -> Iterator[PolicyServer]:
    """Serve empty buckets on a free port, from a folder that is empty."""
    program = find_versitygw()
    assert program is not None
    for each in ("iam", *(f"data/{bucket}" for bucket in buckets)):
        (folder / each).mkdir(parents=True)
    require_attributes(folder)
    port, iam_port = free_port(), free_port()
    log = folder / "access.log"
    root = ["--access", SECRET, "--secret", SECRET, "--quiet", "--port"]
    # The path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="shale") as short:
        socket = f"{short}/iam"
        iam = ["iam", "--dir", str(folder / "iam"), "--private-ports", socket]
        gateway = ["--access-log", str(log), "--iam-standalone-endpoint", socket, "posix", str(folder / "data")]
        with child_process([program, *root, f"127.0.0.1:{iam_port}", *iam]):
            wait_for_port(iam_port)
            with child_process([program, *root, f"127.0.0.1:{port}", *gateway]):
                wait_for_port(port)
                yield PolicyServer(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{iam_port}", log)
