"""``shale healthcheck``: probes the admin port of a daemon; the health check of containers."""

from typing import Annotated

import typer

from shale_cli.framework.client_tls import CaFile
from shale_cli.framework.probe import WAIT_S, probe


def healthcheck(
    admin: Annotated[
        str | None,
        typer.Option(
            help="Host and port of the admin port, or https://host:port; default 127.0.0.1:$SHALE_ADMIN__PORT."
        ),
    ] = None,
    endpoint: Annotated[str, typer.Option(help="livez, readyz or startupz.")] = "readyz",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the response.")] = WAIT_S,
    ca_file: CaFile = None,
) -> None:
    """Exit with 0 if the daemon is healthy, with 4 if it is not, or does not respond."""
    code = probe(admin, endpoint, wait, None if ca_file is None else str(ca_file))
    if code:
        raise SystemExit(code)
