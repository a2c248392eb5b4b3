"""Probes an admin port with the standard library alone: containers run this every few seconds next to the daemon."""

import os
import sys

DEFAULT_PORT = "9464"
WAIT_S = 3.0
OK, NEGATIVE = 0, 4
"""Exit codes, copied from ``shale.service.exit_codes``, whose import would cost more than the probe."""


def probe(admin: str | None = None, endpoint: str = "readyz", wait_s: float = WAIT_S) -> int:
    """Return 0 if the daemon is healthy; otherwise print the reason to stderr and return 4."""
    address = admin or f"127.0.0.1:{os.environ.get('SHALE_ADMIN__PORT', DEFAULT_PORT)}"
    status, body = ask(address, endpoint, wait_s)
    if status == 200:
        return OK
    sys.stderr.write(f"shale: {address}/{endpoint}: {body}\n")
    return NEGATIVE


def ask(address: str, endpoint: str, wait_s: float) -> tuple[int, str]:
    """Return the status and body of an endpoint of an admin port; status 0 without a response."""
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
