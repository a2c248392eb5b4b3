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
    """Return the token of a file, otherwise that of the environment; ``None`` without one.

    Raises:
        InvalidRequestError: the file holds no token.
    """
    if file is not None:
        from shale.client.authorization import token_of_file

        return token_of_file(file)
    return os.environ.get(VARIABLE, "").strip() or None
