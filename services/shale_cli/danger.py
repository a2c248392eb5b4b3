"""Commands that destroy something are dry runs until somebody says so (docs/operations.md 14)."""

import sys

from shale.errors import InvalidRequestError
from shale_cli.output import Output


def is_confirmed(output: Output, name: str, *, yes: bool, dry_run: bool, what: str) -> bool:
    """Whether to act now.  On a terminal somebody may type the name of the database instead of ``--yes``.

    Args:
        name: the alias of the database.
        what: what would be done, for example ``delete 12 objects``; said to whoever is asked.

    Raises:
        InvalidRequestError: both were said.
    """
    if yes and dry_run:
        raise InvalidRequestError("give either --yes or --dry-run")
    if yes:
        return True
    if not dry_run and sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"This will {what}.  Type {name} to go on: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() == name:
            return True
        sys.stderr.write("That is not its name: nothing was done.\n")
        return False
    output.note(f"dry run: nothing was done; to {what}, add --yes" if not dry_run else "dry run: nothing was done")
    return False
