"""The code of another commit: a checkout with an environment of its own, without Spark."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.paths import REPOSITORY


class Version:
    """The processes of one commit.

    Args:
        folder: a checkout.
        python: an interpreter that has what the commit locks.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder, self.python = folder, python

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process has this code."""
        paths = (self._folder / "shared", self._folder / "services")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def run(self, *arguments: str) -> None:
        """Run this Python to its end."""
        subprocess.run([str(self.python), *arguments], check=True, env=self.environment, cwd=self._folder)


def current() -> Version:
    """Return the version at hand."""
    return Version(REPOSITORY, Path(sys.executable))


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Version]:
    """Check a commit out and install what it locks; both are removed at the end."""
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory(prefix="shale-version") as place:
        folder = Path(place) / "checkout"
        subprocess.run([*git, "add", "--quiet", "--force", "--detach", str(folder), commit], check=True)
        try:
            environment = folder / ".venv"
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
            python = environment / "bin" / "python"
            install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", str(python)]
            subprocess.run([*install, "-r", str(folder / "requirements.lock")], check=True)
            yield Version(folder, python)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)
