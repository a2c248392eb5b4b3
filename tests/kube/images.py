"""Images of the cluster: the project's, of two commits, and the one that holds the namespaces of a pod."""

import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kube.errors import KubeCheckError
from tests.kube.layout import Layout
from tests.kube.node_files import PAUSE_IMAGE
from tests.kube.processes import run, say
from tests.paths import REPOSITORY

CURRENT, PREVIOUS = "docker.io/library/shale:current", "docker.io/library/shale:previous"
BUILD_S = 1800.0


def prepare(layout: Layout, previous: str, made: Mapping[str, str]) -> None:
    """Write archives of all images; those that did not change since the last run stay.

    Args:
        layout: says where to.
        previous: the commit of the chart and the image from which the release is upgraded.
        made: images of Docker to take instead of building ``CURRENT`` or ``PREVIOUS``.
    """
    layout.images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pause(layout, Path(folder))
        export(previous, Path(folder) / "previous")
        for name, source in ((PREVIOUS, Path(folder) / "previous"), (CURRENT, REPOSITORY)):
            start = time.monotonic()
            if name in made:
                run([_docker(), "tag", made[name], _short(name)])
                say(f"{_short(name)} is {made[name]}, whatever that was built of")
            else:
                build(name, source)
            save(layout, name)
            say(f"image {_short(name)} ready after {time.monotonic() - start:.0f} s")


def export(commit: str, target: Path) -> None:
    """Write the files of a commit to a folder."""
    target.mkdir()
    archive = target.with_suffix(".tar")
    run(["git", "archive", "--format=tar", "-o", str(archive), commit], cwd=REPOSITORY)
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def build(name: str, source: Path) -> None:
    """Build an image from a folder."""
    base = ["--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}"] if "BASE_IMAGE" in os.environ else []
    command = [_docker(), "build", *base, "-t", _short(name), "."]
    run(command, cwd=source, env={"DOCKER_BUILDKIT": "1"}, timeout_s=BUILD_S)


def save(layout: Layout, name: str) -> None:
    """Write the archive of an image, unless there is one of the same image."""
    docker, short = _docker(), _short(name)
    identity = json.loads(run([docker, "inspect", short]))[0]["Id"]
    archive = layout.images / f"{short.replace(':', '-')}.tar"
    mark = archive.with_suffix(".id")
    if not (archive.exists() and mark.exists() and mark.read_text() == identity):
        mark.unlink(missing_ok=True)
        run([docker, "save", "-o", str(archive), short])
        mark.write_text(identity)


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
