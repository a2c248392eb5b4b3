"""Confirmation of destructive commands, which are dry runs without it (docs/how-to/command-line.md)."""

import sys

from shale.errors import InvalidRequestError
from shale_cli.framework.output.writer import Output


def ask_confirmation(output: Output, name: str, *, yes: bool, dry_run: bool, what: str) -> bool:
    """Return whether to act.  On a terminal, typing the name of the database replaces ``--yes``.

    Args:
        name: the name of the database to type.
        yes: ``--yes`` was given.
        dry_run: ``--dry-run`` was given.
        what: the effect for the prompt, for example ``delete 12 objects``.

    Raises:
        InvalidRequestError: both options were given.
    """
    if yes and dry_run:
        raise InvalidRequestError("give either --yes or --dry-run")
    if yes:
        return True
    if not dry_run and sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"This will {what}.  Type {name} to continue: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() == name:
            return True
        sys.stderr.write("The name does not match: nothing was done.\n")
        return False
    output.note(f"dry run: nothing was done; to {what}, add --yes" if not dry_run else "dry run: nothing was done")
    return False
