"""Run bandit, and require a reason for each finding: ``python -m tests.checks.bandit_findings``.

``accepted_findings.toml`` has the reasons.  A finding without one fails, and so does a reason without its finding.
"""

import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY

ACCEPTED = Path(__file__).with_name("accepted_findings.toml")
CHECKED = ("shared", "services", "deploy")
SKIPPED = {
    "B101": "asserts are for our own mistakes",
    "B403": "an import of pickle is no use of it: B301 finds those",
    "B404": "an import of subprocess is no use of it: B602 to B607 find those",
    "B603": "without a shell, arguments are no commands",
}

Key = tuple[str, str]
"""The id of the test, and the file."""


def findings() -> list[dict[str, Any]]:
    """Return what bandit finds."""
    command = [sys.executable, "-m", "bandit", "--quiet", "--recursive", *CHECKED, "--format", "json"]
    options = ["--exclude", "shared/shale/_generated", "--skip", ",".join(SKIPPED), "--exit-zero"]
    done = subprocess.run([*command, *options], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    if found["errors"]:
        raise SystemExit(f"bandit: {found['errors']}")
    return list(found["results"])


def accepted(text: str) -> dict[Key, int]:
    """Read the accepted findings.

    Raises:
        SystemExit: one has no reason.
    """
    entries = tomllib.loads(text)["accepted"]
    if bare := [each for each in entries if not each.get("reason")]:
        raise SystemExit(f"{ACCEPTED.name}: no reason: {bare}")
    return {(each["test"], each["file"]): each["count"] for each in entries}


def problems(found: list[dict[str, Any]], allowed: Mapping[Key, int]) -> list[str]:
    """Return what differs from the accepted findings, one line each."""
    counts = Counter((each["test_id"], each["filename"].removeprefix("./")) for each in found)
    new = [
        f"{each['filename']}:{each['line_number']}: {each['test_id']} {each['issue_text']}"
        for each in found
        if counts[key := (each["test_id"], each["filename"].removeprefix("./"))] > allowed.get(key, 0)
    ]
    gone = [
        f"{ACCEPTED.name}: {file}: {test} is found {counts[test, file]} times, not {count}"
        for (test, file), count in allowed.items()
        if counts[test, file] < count
    ]
    return [*new, *gone]


def main() -> None:
    """Print the problems; exit with 1 if there are any."""
    found = problems(findings(), accepted(ACCEPTED.read_text()))
    print("\n".join(found) or "bandit: each finding has its reason")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
