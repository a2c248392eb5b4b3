"""A database, its users with the rights of their roles, and processes that run as them."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from deploy.policies.roles import ROLES, Place, Role
from deploy.policies.s3 import policy
from tests.integration.daemons.daemon_process import READY_S, Daemon, running
from tests.integration.policies.server import PolicyServer
from tests.paths import PYTHONPATH
from tests.processes.forks import run

BUCKET, BACKUPS = "bucket", "backups"
BY_NAME: Mapping[str, Role] = {role.name: role for role in ROLES}


class Identities:
    """The users of one database; each is made when it is used first, with the policy of its role.

    Args:
        path: of the database in the bucket; its backups and its copies are at places named after it.
        folder: for logs.
    """

    def __init__(self, server: PolicyServer, path: str, folder: Path) -> None:
        self.server = server
        self.url = f"s3://{BUCKET}/{path}"
        self.copy_url = f"{self.url}-copy"
        self.backups_url = f"s3://{BACKUPS}/{path}"
        self._path, self._folder = path, folder
        self._variables: dict[str, dict[str, str]] = {}
        self._processes = 0

    def variables(self, role: str) -> dict[str, str]:
        """Return the variables with which a process has this role."""
        if role not in self._variables:
            rights = policy(BY_NAME[role], self.locations())
            self._variables[role] = self.server.add_user(f"{self._path}.{role}", rights)
        return self._variables[role]

    def clone(self) -> "Identities":
        """Return the users of the copy, as a clone of this database: they also have the rights at its source."""
        clone = Identities(self.server, f"{self._path}-copy", self._folder)
        for role, at_source in (("follower", "source"), ("gc", "source-gc"), ("destroyer", "source-gc")):
            more = policy(BY_NAME[at_source], self.locations())
            clone._variables[role] = self.server.add_user(
                f"{clone._path}.{role}", policy(BY_NAME[role], clone.locations()), more
            )
        return clone

    def locations(self) -> dict[Place, str]:
        """Return bucket and path of each place."""
        copy = f"{BUCKET}/{self._path}-copy"
        return {Place.DATABASE: f"{BUCKET}/{self._path}", Place.BACKUPS: f"{BACKUPS}/{self._path}", Place.TARGET: copy}

    def daemon(self, role: str, module: str, *options: str) -> AbstractContextManager[Daemon]:
        """Run a daemon as a role."""
        self._processes += 1
        log = self._folder / f"{self._processes}-{role}.log"
        return running(module, "--url", self.url, *options, log=log, env=self.variables(role))

    def shale(self, role: str, *arguments: str, url: str | None = None) -> str:
        """Run a command as a role; return what it prints."""
        env = {"PYTHONPATH": PYTHONPATH, **self.variables(role)}
        options = ("-u", url or self.url)
        done = run("shale_cli", *arguments, *options, env=env, folder=self._folder, is_strict=True, timeout_s=60)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.decode()

    def refused(self) -> list[tuple[str, str, str]]:
        """Return what was refused to the users of this database: role, operation and target."""
        return [
            (user.split(".")[1], *what) for user, *what in self.server.refused() if user.startswith(f"{self._path}.")
        ]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + READY_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
