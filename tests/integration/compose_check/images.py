"""The images of the stack: how they are built, and what holds for the one of the daemons."""

import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from shale.core.token_hash import token_hash
from tests.integration.compose_check.engine import HEALTHY_S, TOKEN, CheckError, Engine, say, wait_until
from tests.integration.store.versitygw import find_versitygw

IMAGE = os.environ.get("SHALE_IMAGE", "shale:local")
IMAGE_BYTES = 450_000_000
SECRET = re.compile(r"(?i)password|passwd=|secret|token|credential|private.?key|https?://[^/\s]*@")
NO_SECRET = re.compile(r"SHALE_ADMIN__REQUIRE_TOKEN=true|/var/lib/shale/(tokens|secrets)(?![\w/])")
"""A setting, and the folders where volumes are mounted, which are empty in the image."""
USER = "54321:54321"

FROM_BINARIES = {
    "STORE_IMAGE": ("shale-store:local", ("versitygw",), "0"),
    "PROMETHEUS_IMAGE": ("shale-prometheus:local", ("prometheus", "promtool"), "65534:65534"),
    "ALERTMANAGER_IMAGE": ("shale-alertmanager:local", ("alertmanager", "amtool"), "65534:65534"),
}
"""Variable of the image, its name, its programs (the first is the entry point), its user."""
TEMPLATES = Path("/usr/share/prometheus/alertmanager")
"""Debian's Alertmanager does not contain its templates, but reads them here."""


def build(engine: Engine) -> None:
    """Build or pull the images of the stack."""
    if "SHALE_IMAGE" not in os.environ:
        start = time.monotonic()
        engine.run("build", *_base(), "-t", IMAGE, ".")
        say(f"built {IMAGE} in {time.monotonic() - start:.0f} s")
    if engine.has_registry:
        engine.compose("pull", "store", "prometheus", "alertmanager", "grafana")
        return
    for variable, (image, programs, user) in FROM_BINARIES.items():
        _build_from_binaries(engine, image, programs, user)
        engine.env[variable] = image


def check_size(engine: Engine) -> None:
    """The image of the daemons keeps its size."""
    size = int(json.loads(engine.run("inspect", IMAGE))[0]["Size"])
    say(f"{IMAGE} has {size / 1e6:.0f} MB")
    if size > IMAGE_BYTES:
        raise CheckError(f"the image of the daemons may have {IMAGE_BYTES / 1e6:.0f} MB")


def _base() -> list[str]:
    return ["--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}"] if "BASE_IMAGE" in os.environ else []


def _build_from_binaries(engine: Engine, image: str, programs: tuple[str, ...], user: str) -> None:
    name = programs[0]
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            shutil.copy(_binary(program), Path(folder, program))
        lines = [
            f"FROM {os.environ.get('BASE_IMAGE', 'python:3.12-slim')}",
            f"COPY {' '.join(programs)} /bin/",
            f"RUN mkdir /{name} && chown {user} /{name}",
            f"USER {user}",
            f'ENTRYPOINT ["/bin/{name}"]',
        ]
        if name == "alertmanager" and TEMPLATES.is_dir():
            shutil.copytree(TEMPLATES, Path(folder, "templates"))
            lines.append(f"COPY templates {TEMPLATES}")
        Path(folder, "Dockerfile").write_text("\n".join(lines) + "\n")
        engine.run("build", "-t", image, folder)


def _binary(program: str) -> Path:
    """Return a program of this machine; Debian has another name for Alertmanager."""
    folder = Path(os.environ["BINARIES"])
    places = [folder / program, folder / f"prometheus-{program}"]
    if program == "versitygw" and (found := find_versitygw()) is not None:
        places.insert(0, Path(found))
    for place in places:
        if place.exists():
            return place
    raise CheckError(f"{program} is not in {folder}" + (": make versitygw" if program == "versitygw" else ""))


def check_history(engine: Engine) -> None:
    """Neither a layer's command nor a variable of the image says a secret."""
    history = engine.run("history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE).splitlines()
    variables = json.loads(engine.run("inspect", IMAGE))[0]["Config"]["Env"]
    found = [line for line in (*history, *variables) if SECRET.search(NO_SECRET.sub("", line))]
    if found:
        raise CheckError(f"the image may contain a secret: {found}")
    say(f"no secret in {len(history)} layers and {len(variables)} variables of {IMAGE}")


def check_any_user(engine: Engine) -> None:
    """Run a writer as a user that the image does not know, with a root that nothing can write."""
    hardened = ["--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    token = ["-e", f"SHALE_TOKENS__WRITE={token_hash(TOKEN)}"]  # without one, a port for other machines is refused
    started = [*hardened, *token, "--user", USER, IMAGE, "writer", "--url", "file:///tmp/db"]
    container = engine.run("run", "-d", *started).strip()

    def state() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(engine.run("inspect", container))[0]["State"]
        return found

    def complaint() -> str | None:
        found = state()
        if found["Status"] == "exited":
            raise CheckError(f"a writer as {USER} ends with {found['ExitCode']}\n{engine.logs(container)}")
        return None if found["Health"]["Status"] == "healthy" else f"{found}\n{engine.logs(container)}"

    try:
        healthy_s = wait_until(f"a writer as {USER}", HEALTHY_S, complaint)
        engine.run("stop", "-t", "30", container)
        code = state()["ExitCode"]
        if code != 0:
            raise CheckError(f"a writer as {USER} ends with {code}\n{engine.logs(container)}")
        say(f"a writer as {USER} with a read-only root: healthy after {healthy_s:.1f} s, ends with 0")
    finally:
        engine.run("rm", "-f", container)
