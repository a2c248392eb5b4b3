"""The object store of the check: versitygw on a folder, next to the control plane, and the keys that it accepts."""

import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.kube.layout import CONTROL_PLANE, STORE_PORT, Layout
from tests.kube.processes import Processes, run, wait_for
from tests.paths import PYTHONPATH

BUCKET = "shale"
DATABASE = f"s3://{BUCKET}/orders"
ENDPOINT = f"http://{CONTROL_PLANE}:{STORE_PORT}"
REGION = "us-east-1"
START_S, COMMAND_S = 60.0, 60.0
REFUSED = "InvalidAccessKeyId"
CREDENTIALS_REJECTED = 77
"""The exit code of a command whose key is refused (docs/reference/exit-codes.md)."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the store: its id, which logs show, and its secret."""

    id: str
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    def environment(self) -> Mapping[str, str]:
        """Return the variables by which clients of S3 find the key."""
        return {"AWS_ACCESS_KEY_ID": self.id, "AWS_SECRET_ACCESS_KEY": self.secret}


@dataclass(frozen=True, slots=True)
class Request:
    """One request in the log of the store: who sent it, with which key (- if refused), and the error (- if none)."""

    address: str
    key_id: str
    error: str


def parse_request(line: str) -> Request:
    """Return a request of the log, whose lines are those of S3: owner, bucket, [time], address, key, …."""
    words = line.split("] ", 1)[1].split()
    return Request(words[0], words[1], words[7])


class Store:
    """The store's process; keys are added and removed while it runs."""

    def __init__(self, layout: Layout) -> None:
        self._program = str(layout.cache / "versitygw")
        self._objects = layout.state / "objects"
        self._users = layout.state / "store-users"
        self._log = layout.logs / "store-requests.log"
        self._root = Key("store-root")

    def start(self, processes: Processes) -> None:
        """Start the store with one empty bucket; only its administrator has a key."""
        (self._objects / BUCKET).mkdir(parents=True)
        self._users.mkdir()
        command = [self._program, "--port", f"{CONTROL_PLANE}:{STORE_PORT}", "--region", REGION]
        command += ["--iam-dir", str(self._users), "--access-log", str(self._log), "posix", str(self._objects)]
        root = {"ROOT_ACCESS_KEY": self._root.id, "ROOT_SECRET_KEY": self._root.secret}
        processes.start("versitygw", command, env=root)
        wait_for("object store", START_S, _answers)

    def add(self, key: Key) -> None:
        """Accept a key from now on."""
        self._administer("create-user", "--access", key.id, "--secret", key.secret, "--role", "admin")

    def remove(self, key: Key) -> None:
        """Refuse a key from now on."""
        self._administer("delete-user", "--access", key.id)

    def refuses(self, key: Key) -> bool | None:
        """Return whether a command with this key ends because its credentials are rejected."""
        command = [sys.executable, "-m", "shale_cli", "manifest", "list", "-u", DATABASE]
        settings = {"PYTHONPATH": PYTHONPATH, "SHALE_STORE__ENDPOINT": ENDPOINT, "SHALE_STORE__REGION": REGION}
        env = {**os.environ, **settings, **key.environment()}
        done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=COMMAND_S)
        return True if done.returncode == CREDENTIALS_REJECTED else None

    def requests(self) -> list[Request]:
        """Return all requests so far."""
        text = self._log.read_text()
        return [parse_request(line) for line in text[: text.rfind("\n") + 1].splitlines() if "] " in line]

    def _administer(self, *arguments: str) -> None:
        keys = {"ADMIN_ACCESS_KEY_ID": self._root.id, "ADMIN_SECRET_ACCESS_KEY": self._root.secret}
        run([self._program, "admin", "--region", REGION, "--endpoint-url", ENDPOINT, *arguments], env=keys)


def _answers() -> bool | None:
    try:
        with urllib.request.urlopen(f"{ENDPOINT}/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True  # it asks for a signature
