"""Images of others by digest: ``python -m deploy.release.images`` looks the digests up, ``--check`` compares.

``images.toml`` lists the images.  The defaults in the Dockerfile, the compose file and its example of variables follow
it: ``name:tag@digest``, or ``name:tag`` while no digest is known.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.release.changelog import ReleaseError
from deploy.release.tools import REPOSITORY

LIST = Path("deploy/release/images.toml")
USES = (Path("Dockerfile"), Path("docker-compose.yml"), Path(".env.example"))
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DEFAULT = re.compile(r"(?P<before>(?:ARG |#|\$\{)(?P<name>[A-Z]+_IMAGE)(?::-|=))(?P<image>[^\s}$]+)")
TOOLS: Mapping[str, tuple[str, ...]] = {
    "crane": ("digest", "{image}"),
    "skopeo": ("inspect", "--format", "{{{{.Digest}}}}", "docker://{image}"),
    "docker": ("buildx", "imagetools", "inspect", "--format", "{{{{.Manifest.Digest}}}}", "{image}"),
}
"""Programs that ask a registry for the digest of an image, of all its platforms together."""


class Image(NamedTuple):
    """One image; an empty digest is not known."""

    image: str
    digest: str

    @property
    def reference(self) -> str:
        """The name with the tag, which people read, and the digest, which is pulled."""
        return f"{self.image}@{self.digest}" if self.digest else self.image


def images(text: str) -> dict[str, Image]:
    """Read the list of images.

    Raises:
        ReleaseError: a digest is malformed.
    """
    found = {name: Image(each["image"], each["digest"]) for name, each in tomllib.loads(text).items()}
    if wrong := [name for name, each in found.items() if each.digest and not DIGEST.fullmatch(each.digest)]:
        raise ReleaseError(f"{LIST}: {', '.join(wrong)}: a digest is sha256: and 64 hexadecimal digits")
    return found


def problems(listed: Mapping[str, Image], texts: Mapping[Path, str]) -> Iterator[str]:
    """Yield the defaults that differ from the list, and images that are not in it."""
    for path, text in texts.items():
        for match in _DEFAULT.finditer(text):
            name, used = match["name"], match["image"]
            if name in listed and used != listed[name].reference:
                yield f"{path}: {name} is {used}, and {LIST} has {listed[name].reference}"
            elif name not in listed and not used.endswith(":local"):
                yield f"{path}: {name} is not in {LIST}"


def follow(listed: Mapping[str, Image], text: str) -> str:
    """Return a file with the images of the list as its defaults."""

    def replaced(match: re.Match[str]) -> str:
        image = listed.get(match["name"])
        return match["before"] + (match["image"] if image is None else image.reference)

    return _DEFAULT.sub(replaced, text)


def look_up(image: str) -> str:
    """Ask the registry for the digest of an image.

    Raises:
        ReleaseError: no program is there that can ask, or it fails.
    """
    for tool, arguments in TOOLS.items():
        if shutil.which(tool):
            command = [tool, *(each.format(image=image) for each in arguments)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode or not DIGEST.fullmatch(done.stdout.strip()):
                raise ReleaseError(f"{image}: {' '.join(command)}: {(done.stderr or done.stdout).strip()}")
            return done.stdout.strip()
    raise ReleaseError(f"install one of {', '.join(TOOLS)}: it asks the registry for digests")


def with_digests(text: str) -> str:
    """Return the list with the digests that the registries have now."""
    head = text[: text.index("[")]
    found = {name: each._replace(digest=look_up(each.image)) for name, each in images(text).items()}
    entries = (f'[{name}]\nimage = "{each.image}"\ndigest = "{each.digest}"\n' for name, each in found.items())
    return head + "\n".join(entries)


def require_digests(repository: Path, *, is_required: bool) -> None:
    """Require that the files follow the list, and that each image has a digest.

    Args:
        is_required: whether a missing digest is an error; otherwise it is told.

    Raises:
        ReleaseError: a file differs, or a digest is missing.
    """
    listed = images((repository / LIST).read_text())
    if wrong := list(problems(listed, {path: (repository / path).read_text() for path in USES})):
        raise ReleaseError("\n".join(wrong))
    missing = ", ".join(name for name, each in listed.items() if not each.digest)
    if missing and is_required:
        raise ReleaseError(f"no digest of {missing}: run make images-lock, or release with --without-digests")
    if missing:
        print(f"release: without digests of {missing}", file=sys.stderr)


def main() -> None:
    """Look digests up, or check."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release.images")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file differs")
    try:
        if parser.parse_args().check:
            require_digests(REPOSITORY, is_required=False)
            return
        listed = with_digests((REPOSITORY / LIST).read_text())
    except ReleaseError as error:
        raise SystemExit(f"images: {error}") from error
    (REPOSITORY / LIST).write_text(listed)
    for path in USES:
        (REPOSITORY / path).write_text(follow(images(listed), (REPOSITORY / path).read_text()))


if __name__ == "__main__":
    main()
