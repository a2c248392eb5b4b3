"""The provenance of a release: which files were built, from which commit, with which inputs, by which steps.

It is a statement of in-toto with a predicate of SLSA.  The signature of the checksums covers it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:shale:build:make-release:1"
BUILDER = "urn:shale:builder:release-machine"
"""One machine of the maintainers, as docs/how-to/release.md says; no service builds releases."""
SOURCE = "shale"
INPUTS = ("pyproject.toml", "requirements.lock", "requirements-dev.lock", "requirements-release.lock")
"""Files of the commit that decide which tools build, and which packages are named."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def statement(
    files: Iterable[Path], *, version: str, commit: str, repository: Path, began: datetime, ended: datetime
) -> dict[str, Any]:
    """Return the statement about the files of a release.

    Args:
        commit: the id of the commit, of which the repository has an unchanged checkout.
        began, ended: times of the build, in UTC.
    """
    inputs = [{"name": name, "digest": {"sha256": sha256(repository / name)}} for name in INPUTS]
    return {
        "_type": STATEMENT,
        "subject": [{"name": each.name, "digest": {"sha256": sha256(each)}} for each in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": version, "commit": commit},
                "resolvedDependencies": [{"name": SOURCE, "digest": {"gitCommit": commit}}, *inputs],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {"startedOn": _text(began), "finishedOn": _text(ended)},
            },
        },
    }


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_statement(path: Path, value: Mapping[str, Any]) -> None:
    """Write a statement."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def problems(text: str, files: Mapping[str, str], *, version: str, lock: str, commit: str | None) -> Iterator[str]:
    """Yield what is wrong with a statement.

    Args:
        files: SHA-256 of each file that it must be about, by name.
        lock: SHA-256 of the lock file of the release.
        commit: the commit that is expected, if it is known.
    """
    try:
        found = json.loads(text)
        subjects = {each["name"]: each["digest"]["sha256"] for each in found["subject"]}
        definition = found["predicate"]["buildDefinition"]
        builder = found["predicate"]["runDetails"]["builder"]["id"]
        given = definition["externalParameters"]
        inputs = {each["name"]: each["digest"] for each in definition["resolvedDependencies"]}
        types = (found["_type"], found["predicateType"], definition["buildType"])
    except (ValueError, KeyError, TypeError) as error:
        yield f"it is no statement of in-toto with a predicate of SLSA: {error!r}"
        return
    if types != (STATEMENT, PREDICATE, BUILD_TYPE):
        yield f"it is of another type: {', '.join(map(str, types))}"
    if builder != BUILDER:
        yield f"it names another builder: {builder}"
    for name in sorted(subjects.keys() | files.keys()):
        if subjects.get(name) != files.get(name):
            yield f"{name}: it has {subjects.get(name, 'no digest')}, the file {files.get(name, 'is not there')}"
    if given != {"version": version, "commit": inputs.get(SOURCE, {}).get("gitCommit")}:
        yield f"version or commit differ: {given}"
    if set(inputs) != {SOURCE, *INPUTS}:
        yield f"its inputs are {', '.join(sorted(inputs))}"
    elif inputs["requirements.lock"] != {"sha256": lock}:
        yield "its requirements.lock is not that of the release"
    if commit is not None and given.get("commit") != commit:
        yield f"it is of commit {given.get('commit')}, not {commit}"
