"""The tools of a release, installed from their lock into a folder of their own."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / ".shale" / "release-tools"


def run(*command: str | Path) -> str:
    """Run a command in the repository and return what it prints."""
    done = subprocess.run([str(each) for each in command], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return done.stdout


def install_tools() -> Path:
    """Install the tools from their lock; return the folder of their commands."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--clear", TOOLS)
    run(uv, "pip", "install", "--quiet", "--python", TOOLS, "--require-hashes", "-r", "requirements-release.lock")
    return TOOLS / "bin"
