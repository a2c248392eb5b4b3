"""The bearer token of commands that call the admin port of a daemon."""

import os
from pathlib import Path
from typing import Annotated

import typer

VARIABLE = "SHALE_ADMIN_TOKEN"
ADVICE = f"give --admin-token-file (SHALE_ADMIN_TOKEN_FILE), or set {VARIABLE}"

AdminTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--admin-token-file",
        envvar=f"{VARIABLE}_FILE",
        exists=True,
        dir_okay=False,
        help=f"File with a bearer token for admin ports, with the role admin; by default {VARIABLE} is the token.",
    ),
]


def admin_token(file: Path | None) -> str | None:
    """Return the token of a file, otherwise that of the environment; ``None`` without one."""
    text = os.environ.get(VARIABLE, "") if file is None else file.read_text()
    return text.strip() or None
