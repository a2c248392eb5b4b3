"""Check the lock files: every package has a wheel for each Python and machine: ``python -m tests.checks.locks``.

PySpark comes as a source distribution only.
"""

import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from tests.paths import REPOSITORY

LOCKS = ("requirements.lock",)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")


def check(lock: str, python: str, platform: str) -> str | None:
    """Return what is missing, if a package of a lock has no wheel."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--dry-run", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as target:
        where = ["--python-version", python, "--python-platform", platform, "--target", target]
        command = [str(uv), "pip", "install", *options, *where, "-r", lock]
        done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    return f"{lock}, Python {python}, {platform}:\n{done.stderr.rstrip()}" if done.returncode else None


def main() -> None:
    """Check all locks; exit with 1 if a wheel is missing."""
    missing = [found for each in product(LOCKS, PYTHONS, PLATFORMS) if (found := check(*each)) is not None]
    print(
        "\n".join(missing)
        or f"{', '.join(LOCKS)}: wheels for Python {', '.join(PYTHONS)} on {len(PLATFORMS)} platforms"
    )
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
