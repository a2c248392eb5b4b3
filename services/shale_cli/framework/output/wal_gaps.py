"""``--allow-wal-gap``: reading a database of which WAL files are lost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import print_error

if TYPE_CHECKING:
    from shale.protocol.wal_completeness import WalGap

AllowWalGap = Annotated[
    bool,
    typer.Option(
        "--allow-wal-gap", help="If WAL files are lost, read the rows of all others and name the lost ones on stderr."
    ),
]


def warn_of_gaps(gaps: Sequence["WalGap"]) -> None:
    """Print to stderr which WAL files are left out, if any."""
    from shale.protocol.wal_completeness import show_gaps

    if gaps:
        print_error(f"warning: the rows of lost WAL files are left out: {show_gaps(gaps)}")
