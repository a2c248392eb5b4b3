"""Probes an admin port with the standard library alone: containers run this every few seconds next to the daemon."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPConnection

DEFAULT_PORT = "9464"
WAIT_S = 3.0
OK, NEGATIVE = 0, 4
"""Exit codes, copied from ``shale.service.exit_codes``, whose import would cost more than the probe."""


def probe(
    admin: str | None = None, endpoint: str = "readyz", wait_s: float = WAIT_S, ca_file: str | None = None
) -> int:
    """Return 0 if the daemon is healthy; otherwise print the reason to stderr and return 4."""
    address = admin or f"127.0.0.1:{os.environ.get('SHALE_ADMIN__PORT', DEFAULT_PORT)}"
    status, body = ask(address, endpoint, wait_s, ca_file)
    if status == 200:
        return OK
    sys.stderr.write(f"shale: {address}/{endpoint}: {body}\n")
    return NEGATIVE


def local_scheme() -> str:
    """Return the scheme of the ports of daemons that have the variables of this process."""
    return "https" if os.environ.get("SHALE_TLS__CERT_FILE") else "http"


def _connection(address: str, wait_s: float, ca_file: str | None) -> "HTTPConnection":
    """Return a connection: with TLS to ``https://…``, or if the daemon of this environment has it.

    The certificate of the daemon beside is not checked: its name is seldom that of the loopback address.
    """
    from http.client import HTTPConnection, HTTPSConnection

    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = local_scheme(), address
    if scheme != "https":
        return HTTPConnection(rest, timeout=wait_s)
    import ssl

    ca_file = ca_file or os.environ.get("SHALE_CA_FILE") or None
    context = ssl.create_default_context(cafile=ca_file)
    if not separator and ca_file is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(rest, timeout=wait_s, context=context)


def ask(address: str, endpoint: str, wait_s: float, ca_file: str | None = None) -> tuple[int, str]:
    """Return the status and body of an endpoint of an admin port; status 0 without a response."""
    from http.client import HTTPException

    try:
        connection = _connection(address, wait_s, ca_file)
    except (OSError, ValueError) as error:
        return 0, str(error) or type(error).__name__
    try:
        connection.request("GET", f"/{endpoint}")
        answer = connection.getresponse()
        return answer.status, " ".join(answer.read(2000).decode("utf-8", "replace").split())
    except (OSError, HTTPException) as error:
        return 0, str(error) or type(error).__name__
    finally:
        connection.close()
