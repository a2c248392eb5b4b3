"""Secrets for every setting that takes one, commands and daemons that have them, and the search for them."""

import os
import re
from pathlib import Path

from tests.paths import PYTHONPATH
from tests.processes.forks import Fork

START_S = 120.0
ENDPOINT = "http://user:planted-endpoint@127.0.0.1:1"
TOKENS = {
    "SHALE_TOKENS__READ": "planted-read-1,planted-read-2",
    "SHALE_TOKENS__WRITE": "planted-write",
    "SHALE_TOKENS__ADMIN": "planted-admin",
    "SHALE_ADMIN__BEARER_TOKEN": "planted-admin-bearer",
    "SHALE_WRITER__HTTP__BEARER_TOKEN": "planted-http-bearer",
    "SHALE_WRITER__RESP__BEARER_TOKEN": "planted-resp-bearer",
}
SECRETS = TOKENS | {
    "SHALE_STORE__ENDPOINT": ENDPOINT,
    "SHALE_STORE__ACCESS_KEY_ID": "planted-access-key-id",
    "SHALE_STORE__SECRET_ACCESS_KEY": "planted-secret-access-key",
    "SHALE_STORE__SESSION_TOKEN": "planted-session-token",
}
PLANTED = re.compile("planted-[a-z0-9-]+|feedface[0-9a-f]+")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the variables of a process with all secrets; an empty one of ``more`` is left out."""
    keys = folder / "keys"
    keys.write_text("k1 feedfacefeedfacefeedfacefeedface\n")
    found = {**os.environ, "PYTHONPATH": PYTHONPATH, **SECRETS, "SHALE_ENCRYPTION__KEY_FILE": str(keys), **more}
    return {name: text for name, text in found.items() if text}


def run(folder: Path, *arguments: str, module: str = "shale_cli", **more: str) -> str:
    """Run a command or a daemon to its end; return what it wrote."""
    out = folder / "out"
    with out.open("w+b") as file, Path(os.devnull).open("r+b") as null:
        command = Fork(module, *arguments, env=environment(folder, **more), folder=folder, stdio=(null, file, file))
        try:
            assert command.wait(START_S) is not None
        finally:
            if command.poll() is None:
                command.kill()
                command.wait(START_S)
    return out.read_text()


def assert_clean(text: str, what: str) -> None:
    """Check that a text holds no secret."""
    assert PLANTED.findall(text) == [], what
