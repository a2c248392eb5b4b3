"""Verify a release: ``python -m deploy.release.verify FOLDER --allowed-signers FILE``.

It fails for any change: checksums and their signature, the components against their schema, the lock file, the wheels
and an image, the packages against each other and the commit, and the provenance.  Exit code 1 names all differences.
"""

import argparse
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from deploy.release import components, packages, provenance
from deploy.release.checksums import IDENTITY, NAME, NAMESPACE

_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._+-]*)")


class Release(NamedTuple):
    """The files of a release, by what they are."""

    version: str
    source: Path
    wheels: tuple[Path, ...]
    components: Path
    provenance: Path
    lock: Path


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the listed SHA-256 of each file.

    Raises:
        SystemExit: there is no list, or a line is malformed or repeated.
    """
    try:
        lines = (folder / NAME).read_text().splitlines()
    except OSError as error:
        raise SystemExit(f"verify: {folder}: {NAME} cannot be read: {error.strerror}") from None
    found = [_LINE.fullmatch(line) for line in lines]
    sums = {match[2]: match[1] for match in found if match is not None}
    if len(sums) != len(lines):
        raise SystemExit(f"verify: {NAME}: a line is malformed, or a name is there twice")
    return sums


def checksum_problems(folder: Path, sums: dict[str, str]) -> Iterator[str]:
    """Yield the files that differ, are missing, or are not listed."""
    there = {each.name for each in folder.iterdir()} - {NAME, f"{NAME}.sig"}
    for name in sorted(there | sums.keys()):
        if name not in sums:
            yield f"{name} is not in {NAME}"
        elif name not in there:
            yield f"{name} is missing"
        elif provenance.sha256(folder / name) != sums[name]:
            yield f"{name} is not what {NAME} says"


def signature_problems(folder: Path, signers: Path) -> Iterator[str]:
    """Yield why the signature of the checksums is not one of an allowed signer."""
    signature = folder / f"{NAME}.sig"
    if not signature.exists():
        yield f"{signature.name} is missing"
        return
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", IDENTITY, "-n", NAMESPACE, "-s", str(signature)]
    done = subprocess.run(command, input=(folder / NAME).read_bytes(), capture_output=True, check=False)
    if done.returncode:
        yield f"{signature.name}: {(done.stderr or done.stdout).decode().strip()}"


def find(folder: Path) -> Release:
    """Return the parts of a release.

    Raises:
        SystemExit: one is missing, or there are several.
    """
    try:
        (source,) = folder.glob("shale-*.tar.gz")
        version = source.name.removeprefix("shale-").removesuffix(".tar.gz")
        wheels = tuple(sorted(folder.glob(f"shale-{version}-*.whl")))
        files = [folder / f"shale-{version}{ending}" for ending in (".cdx.json", ".provenance.json")]
        lock = folder / "requirements.lock"
        if not wheels or not all(each.exists() for each in (*files, lock)):
            raise ValueError
    except ValueError:
        raise SystemExit(f"verify: {folder} is no whole release of one version") from None
    return Release(version, source, wheels, files[0], files[1], lock)


def content_problems(release: Release, sums: dict[str, str], commit: str | None) -> Iterator[str]:
    """Yield what is wrong inside the files."""
    listed = release.components.read_text()
    found = components.problems(listed, version=release.version, lock=release.lock.read_text(), wheels=release.wheels)
    yield from (f"{release.components.name}: {each}" for each in found)
    sources = packages.source_files(release.source)
    for wheel in release.wheels:
        yield from packages.wheel_problems(wheel)
        yield from packages.difference_problems(wheel, sources)
    described = {name: digest for name, digest in sums.items() if name != release.provenance.name}
    lock = provenance.sha256(release.lock)
    stated = provenance.problems(
        release.provenance.read_text(), described, version=release.version, lock=lock, commit=commit
    )
    yield from (f"{release.provenance.name}: {each}" for each in stated)


def committed_files(repository: Path, commit: str) -> dict[str, bytes]:
    """Return the files of a commit by name."""
    done = subprocess.run(["git", "-C", str(repository), "archive", commit], check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as tar:
        files = ((each.name, tar.extractfile(each)) for each in tar.getmembers() if each.isfile())
        return {name: file.read() for name, file in files if file is not None}


def problems(
    folder: Path,
    *,
    signers: Path | None,
    commit: str | None = None,
    repository: Path | None = None,
    image: Sequence[str] = (),
) -> Iterator[str]:
    """Yield everything that is wrong with a release.

    Args:
        signers: public keys of the maintainers; ``None`` leaves the signature out.
        commit: the commit of which it must be.
        repository: a checkout that has this commit.
        image: the command that starts the Python of an image; empty for none.
    """
    sums = read_checksums(folder)
    if signers is not None:
        yield from signature_problems(folder, signers)
    changed = list(checksum_problems(folder, sums))
    yield from changed
    if changed:
        return  # what is inside changed files says nothing
    release = find(folder)
    yield from content_problems(release, sums, commit)
    if repository is not None and commit is not None:
        committed = committed_files(repository, commit)
        yield from packages.commit_problems(packages.source_files(release.source), committed)
    if image:
        installed = components.installed_packages(image)
        yield from components.image_problems(release.components.read_text(), installed, release.version)


def main(arguments: Sequence[str] | None = None) -> None:
    """Verify a release; exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release.verify")
    parser.add_argument("folder", type=Path)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--allowed-signers", type=Path, help="public keys of the maintainers, for ssh-keygen -Y verify")
    who.add_argument(
        "--unsigned", action="store_true", help="leave out the signature: it shows only what is consistent"
    )
    parser.add_argument("--commit", help="the commit that the tag of the version names")
    parser.add_argument("--source", type=Path, help="a checkout that has the commit: its files are compared")
    parser.add_argument("--image", help="an image of this release: its packages are compared")
    given = parser.parse_args(arguments)
    image = ("docker", "run", "--rm", "--network=none", "--entrypoint=python", given.image) if given.image else ()
    found = list(
        problems(given.folder, signers=given.allowed_signers, commit=given.commit, repository=given.source, image=image)
    )
    for each in found:
        print(f"verify: {each}", file=sys.stderr)
    print(f"verify: {given.folder}: {f'{len(found)} problems' if found else 'as released'}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
