"""``python -m shale_spark.java_install``: install a Java for Spark, or print how to.

Does nothing if there is one.  Installs one if this process may: as root, or where sudo needs no password.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from shale.errors import InvalidRequestError
from shale_spark.prerequisites import Installation, here, require_java


def main() -> int:
    """Return 0 if there is a Java at the end, else 1 after a line that says what to install."""
    try:
        home = require_java()
    except InvalidRequestError as error:
        _say(str(error))
        found = here()
        prefix = None if found is None else _root_prefix(found)
        if found is None or prefix is None or not _installed(found, prefix):
            return 1
        home = require_java()
    _say(f"Java {home.version} in {home.path}")
    return 0


def _root_prefix(found: Installation) -> tuple[str, ...] | None:
    """Return the prefix of commands that need root: nothing, or sudo; ``None`` if this process may not."""
    if not found.needs_root or os.geteuid() == 0:
        return ()
    return ("sudo", "-n") if _runs(("sudo", "-n", "true")) else None


def _installed(found: Installation, prefix: Sequence[str]) -> bool:
    if found.refresh:
        _runs((*prefix, *found.refresh))
    return _runs((*prefix, *found.install))


def _runs(command: Sequence[str]) -> bool:
    try:
        # The output of the package manager goes to stderr, because stdout is for results.
        return subprocess.run(command, check=False, stdout=sys.stderr).returncode == 0  # noqa: S603 - our own words
    except FileNotFoundError:
        return False


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
