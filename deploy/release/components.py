"""The components of a release (CycloneDX), compared with its schema, its lock file, its packages and an image."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from deploy.release.lock import LockedPackage, locked_packages, normalized

SPECIFICATION = "1.6"
EXTRAS = frozenset({"encryption", "otel", "server"})
"""Extras whose packages are in ``requirements.lock``, and so in the image."""
_REQUIRED = re.compile(r"^([A-Za-z0-9._-]+)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([a-z]+)["']""")
_LIST = (
    "import json; from importlib.metadata import distributions as d; "
    "print(json.dumps([[each.metadata['Name'], each.version] for each in d()]))"
)


def problems(text: str, *, version: str, lock: str, wheels: Sequence[Path]) -> Iterator[str]:
    """Yield what is wrong with a list of components.

    Args:
        lock: the text of the lock file of the release.
    """
    yield from schema_problems(text)
    try:
        found = json.loads(text)
        root = found["metadata"]["component"]
        components = dict(_components(found))
    except (ValueError, KeyError, TypeError) as error:
        yield f"it is no list of components: {error!r}"
        return
    if (root.get("name"), root.get("version")) != ("shale", version):
        yield f"it is about {root.get('name')} {root.get('version')}, not shale {version}"
    locked = {each.name: each for each in locked_packages(lock)}
    for name in sorted(components.keys() | locked.keys()):
        if components.get(name) != locked.get(name):
            yield f"{name}: {_summary(components.get(name))} in it, {_summary(locked.get(name))} in the lock file"
    for wheel in wheels:
        missing = sorted(required_packages(wheel) - components.keys())
        if missing:
            yield f"{wheel.name} requires {', '.join(missing)}, which it lacks"


def schema_problems(text: str) -> Iterator[str]:
    """Yield what the schema of CycloneDX forbids."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    if f'"specVersion": "{SPECIFICATION}"' not in text:
        yield f"it is not of CycloneDX {SPECIFICATION}"
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        yield f"it is not valid: {str(error).splitlines()[0][:200]}"


def _components(found: Mapping[str, Any]) -> Iterator[tuple[str, LockedPackage]]:
    for each in found["components"]:
        references = each.get("externalReferences", ())
        hashes = frozenset(digest["content"] for reference in references for digest in reference.get("hashes", ()))
        name = normalized(each["name"])
        yield name, LockedPackage(name, each["version"], hashes)


def _summary(package: LockedPackage | None) -> str:
    return "none" if package is None else f"{package.version} with {len(package.hashes)} hashes"


def required_packages(wheel: Path) -> set[str]:
    """Return what a wheel requires, also for the extras of the image."""
    with ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        required = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    named = ((_REQUIRED.match(each), set(_EXTRA.findall(each))) for each in required)
    return {normalized(name[1]) for name, extras in named if name is not None and extras <= EXTRAS}


def installed_packages(command: Sequence[str]) -> dict[str, str]:
    """Return the versions of the packages that a Python has, by name; ``command`` starts that Python."""
    done = subprocess.run([*command, "-c", _LIST], check=True, capture_output=True, text=True)
    return {normalized(name): version for name, version in json.loads(done.stdout)}


def image_problems(text: str, installed: Mapping[str, str], version: str) -> Iterator[str]:
    """Yield where the packages of an image differ from a list of components.

    An image lacks packages of other machines and other Pythons, so a missing one is no problem.
    """
    expected = {name: each.version for name, each in _components(json.loads(text))} | {"shale": version}
    for name, found in sorted(installed.items()):
        if expected.get(name) != found:
            yield f"the image has {name} {found}, the list has {expected.get(name, 'none')}"
    if "shale" not in installed:
        yield "the image has no shale"
