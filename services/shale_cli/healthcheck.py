"""``shale healthcheck``: ask a daemon's admin port; what containers run to see whether theirs is well."""

import os
from http import HTTPStatus
from typing import Annotated

import typer

from shale_cli.session import complain

DEFAULT_PORT = "9464"


def healthcheck(
    admin: Annotated[
        str | None, typer.Option(help="Host and port of the admin interface; default 127.0.0.1:$SHALE_ADMIN__PORT.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="livez, readyz or startupz.")] = "readyz",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the answer.")] = 3.0,
) -> None:
    """Exit with 0 if the daemon says that it is well, with 4 if it says no or nothing."""
    from shale.service.exit_codes import ExitCode

    address = admin or f"127.0.0.1:{os.environ.get('SHALE_ADMIN__PORT', DEFAULT_PORT)}"
    status, body = ask(address, endpoint, wait)
    if status != HTTPStatus.OK:
        complain(f"{address}/{endpoint}: {body}")
        raise SystemExit(ExitCode.NEGATIVE)


def ask(address: str, endpoint: str, wait_s: float) -> tuple[int, str]:
    """The status and the text of an endpoint of an admin port; status 0 if there was no answer."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(address, timeout=wait_s)
    try:
        connection.request("GET", f"/{endpoint}")
        answer = connection.getresponse()
        return answer.status, " ".join(answer.read(2000).decode("utf-8", "replace").split())
    except (OSError, HTTPException) as error:
        return 0, str(error) or type(error).__name__
    finally:
        connection.close()
