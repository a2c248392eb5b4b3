"""``shale healthcheck``: ask a daemon's admin port; what containers run to see whether theirs is well."""

from typing import Annotated

import typer

from shale_cli.probe import WAIT_S, probe


def healthcheck(
    admin: Annotated[
        str | None, typer.Option(help="Host and port of the admin interface; default 127.0.0.1:$SHALE_ADMIN__PORT.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="livez, readyz or startupz.")] = "readyz",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the answer.")] = WAIT_S,
) -> None:
    """Exit with 0 if the daemon says that it is well, with 4 if it says no or nothing."""
    code = probe(admin, endpoint, wait)
    if code:
        raise SystemExit(code)
