"""Look for known vulnerabilities of the locked packages: ``python -m deploy.release.audit``.

pip-audit asks the package index for each version.  An index that does not tell is an error here: silence would read as
"no known vulnerabilities".  Exit codes: 1 for a vulnerability, 3 if the index does not tell.
"""

import json
import subprocess
import sys
from pathlib import Path

from deploy.release.tools import REPOSITORY, install_tools

LOCKS = ("requirements.lock", "requirements-spark.lock")


def audit(program: Path, lock: str) -> list[dict[str, object]]:
    """Return what is known of each package of a lock.

    Raises:
        SystemExit: the index does not tell.
    """
    command = [str(program), "--require-hashes", "--disable-pip", "--format", "json", "-r", lock]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    try:
        packages: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        print(f"audit: {lock}: {done.stderr.strip() or 'no answer'}", file=sys.stderr)
        raise SystemExit(3) from None
    if untold := [str(each["name"]) for each in packages if "skip_reason" in each]:
        print(f"audit: {lock}: the index tells nothing about {', '.join(untold)}", file=sys.stderr)
        raise SystemExit(3)
    return packages


def vulnerabilities(packages: list[dict[str, object]]) -> list[str]:
    """Return one line for each known vulnerability."""
    return [
        f"{each['name']} {each['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for each in packages
        for known in each["vulns"]  # type: ignore[attr-defined]
    ]


def main() -> None:
    """Audit all locks."""
    program = install_tools() / "pip-audit"
    found = [line for lock in LOCKS for line in vulnerabilities(audit(program, lock))]
    print("\n".join(found) or f"audit: no known vulnerabilities in {', '.join(LOCKS)}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
