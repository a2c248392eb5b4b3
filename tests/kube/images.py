"""Images of the cluster: the project's, of two commits, and the one that holds the namespaces of a pod."""

import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kube.errors import KubeCheckError
from tests.kube.layout import Layout
from tests.kube.node_files import PAUSE_IMAGE
from tests.kube.processes import run, say
from tests.paths import REPOSITORY

CURRENT, PREVIOUS = "docker.io/library/shale:current", "docker.io/library/shale:previous"
SPARK = "docker.io/library/shale-spark:current"
REVISION, UNKNOWN = "SHALE_REVISION", "unknown"
"""The variable of an image that names its commit, and its value in an image that was built by hand."""
BUILD_S = 1800.0


@dataclass(frozen=True, slots=True)
class Image:
    """What Docker says about an image."""

    name: str
    id: str
    revision: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What images are made of: the commit to upgrade from, the working tree, or images that exist."""

    previous: str
    current: str
    made: Mapping[str, str]
    """The image of Docker that is taken instead of building one, by the name of the latter."""


def prepare(layout: Layout, sources: Sources, *, spark: bool) -> list[Image]:
    """Write archives of all images; those that did not change since the last run stay.

    Raises:
        KubeCheckError: an image cannot be built, or the release would be upgraded to the image that it has.
    """
    layout.images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pause(layout, Path(folder))
        export(sources.previous, Path(folder) / "previous")
        builds = [(PREVIOUS, Path(folder) / "previous", sources.previous), (CURRENT, REPOSITORY, sources.current)]
        if spark:
            builds.append((SPARK, REPOSITORY, sources.current))
        found = [_ready(layout, name, source, commit, sources.made) for name, source, commit in builds]
    require_different(found)
    return found


def _ready(layout: Layout, name: str, source: Path, commit: str, made: Mapping[str, str]) -> Image:
    start = time.monotonic()
    if name in made:
        run([_docker(), "tag", made[name], _short(name)])
        say(f"{_short(name)} is {made[name]}, whatever that was built of")
    else:
        run(build_command(name, commit), cwd=source, env={"DOCKER_BUILDKIT": "1"}, timeout_s=BUILD_S)
    image = inspected(name)
    save(layout, image)
    say(f"image {image.name} of {image.revision[:12]} ready after {time.monotonic() - start:.0f} s")
    return image


def require_different(images: Sequence[Image]) -> None:
    """Require that an upgrade replaces the image.

    Raises:
        KubeCheckError: the previous image is the current one.
    """
    by_name = {image.name: image for image in images}
    previous, current = by_name[_short(PREVIOUS)], by_name[_short(CURRENT)]
    if previous.id == current.id or previous.revision == current.revision != UNKNOWN:
        raise KubeCheckError(
            f"{previous.name} and {current.name} are both of {current.revision}, so an upgrade would change nothing: "
            "name an older commit in PREVIOUS="
        )


def export(commit: str, target: Path) -> None:
    """Write the files of a commit to a folder."""
    target.mkdir()
    archive = target.with_suffix(".tar")
    run(["git", "archive", "--format=tar", "-o", str(archive), commit], cwd=REPOSITORY)
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def build_command(name: str, commit: str) -> list[str]:
    """Return the command that builds an image of the current folder, and says of which commit it is."""
    arguments = ["--build-arg", f"REVISION={commit}"]
    if "BASE_IMAGE" in os.environ:
        arguments += ["--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}"]
    if name == SPARK:
        arguments += ["--target", "spark"]
    return [_docker(), "build", *arguments, "-t", _short(name), "."]


def inspected(name: str) -> Image:
    """Return what Docker says about an image."""
    found = json.loads(run([_docker(), "inspect", _short(name)]))[0]
    variables = dict(line.split("=", 1) for line in found["Config"]["Env"])
    return Image(_short(name), found["Id"], variables.get(REVISION, UNKNOWN))


def archive_of(layout: Layout, name: str) -> Path:
    """Return the archive of an image."""
    return layout.images / f"{_short(name).replace(':', '-')}.tar"


def save(layout: Layout, image: Image) -> None:
    """Write the archive of an image, unless there is one of the same image."""
    archive = archive_of(layout, image.name)
    mark = archive.with_suffix(".id")
    if not (archive.exists() and mark.exists() and mark.read_text() == image.id):
        mark.unlink(missing_ok=True)
        run([_docker(), "save", "-o", str(archive), image.name])
        mark.write_text(image.id)


def write_list(file: Path, images: Sequence[Image]) -> None:
    """Write down what runs in the cluster."""
    file.write_text(json.dumps([asdict(image) for image in images]))


def read_list(file: Path) -> dict[str, Image]:
    """Return what ``write_list`` wrote, by the tag of the image."""
    images = [Image(**each) for each in json.loads(file.read_text())]
    return {image.name: image for image in images}


def pause(layout: Layout, folder: Path) -> None:
    """Make the image of the process that holds the namespaces of a pod."""
    archive = layout.images / "shale-pause.tar"
    if archive.exists():
        return
    with tarfile.open(folder / "pause.tar", "w") as files:
        content = (layout.cache / "pause").read_bytes()
        entry = tarfile.TarInfo("pause")
        entry.mode, entry.size = 0o755, len(content)
        files.addfile(entry, io.BytesIO(content))
    docker, short = _docker(), _short(PAUSE_IMAGE)
    change = ["--change", 'ENTRYPOINT ["/pause"]', "--change", "USER 65535:65535"]
    run([docker, "import", *change, str(folder / "pause.tar"), short])
    run([docker, "save", "-o", str(archive), short])


def _short(name: str) -> str:
    # The name that Docker shows.
    return name.removeprefix("docker.io/library/")


def _docker() -> str:
    # Debian's client builds with BuildKit without a plug-in; another one may come first on the path.
    found = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else shutil.which("docker")
    if found is None:
        raise KubeCheckError("docker is not on the path; it builds the images")
    return found
