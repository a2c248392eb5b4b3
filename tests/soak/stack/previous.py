"""The code of an earlier commit, beside the current one."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import REPOSITORY

FOLDERS = ("shared", "services", "requirements.lock", "pyproject.toml")
DISTANCE = 50


def default_previous() -> str | None:
    """Return the newest tag, or a commit some way back; ``None`` outside of a repository."""
    for words in (["describe", "--tags", "--abbrev=0"], ["rev-parse", "--short", f"HEAD~{DISTANCE}"]):
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def current_commit() -> str:
    """Return the commit that is checked out, with a mark if files were changed."""
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()


def check_out(commit: str, folder: Path) -> str:
    """Write the code of a commit to a folder, compile its kernels, and return its ``PYTHONPATH``.

    The packages that it needs are those of the current environment.

    Raises:
        RuntimeError: the commit needs other packages: its lock differs.
    """
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", commit, *FOLDERS], cwd=REPOSITORY, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        path = f"{folder / 'shared'}:{folder / 'services'}"
        words = [sys.executable, "-m", "shale.kernels.compiler.module"]
        subprocess.run(words, cwd=folder, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, check=True)
        (folder / "ready").touch()
    if (folder / "requirements.lock").read_text() != (REPOSITORY / "requirements.lock").read_text():
        raise RuntimeError(f"{commit} needs other packages than the current commit; --previous names a newer one")
    return f"{folder / 'shared'}:{folder / 'services'}"
