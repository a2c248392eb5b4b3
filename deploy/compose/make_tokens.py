"""Make the tokens of the local stack, once: ``make_tokens.py``.

Daemons get hashes as secret files, clients the tokens.  Both folders are volumes, so the tokens stay until
``docker compose down -v``.  ``SHALE_TOKEN`` and ``SHALE_ADMIN_TOKEN`` give tokens instead.
"""

import os
import secrets
import sys
from pathlib import Path

from shale.core.token_hash import token_hash

TOKENS = Path("/var/lib/shale/tokens")
HASHES = Path("/var/lib/shale/secrets")
TOKEN_BYTES = 24
VARIABLES = {"write": "SHALE_TOKEN", "admin": "SHALE_ADMIN_TOKEN"}
"""The variable of the token of each role."""


def make(tokens: Path, hashes: Path) -> None:
    """Write the files that are missing, and those whose token a variable gives."""
    for role, variable in VARIABLES.items():
        file = tokens / role
        given = os.environ.get(variable, "").strip()
        if given or not file.exists():
            _write(file, given or secrets.token_hex(TOKEN_BYTES))
        _write(hashes / f"tokens__{role}", token_hash(file.read_text()))


def _write(file: Path, text: str) -> None:
    """Write a whole file: a reader never sees a part of it."""
    staged = file.with_suffix(".new")
    staged.write_text(text)
    staged.replace(file)


if __name__ == "__main__":
    make(TOKENS, HASHES)
    sys.stdout.write(f"tokens are in {TOKENS}\n")
