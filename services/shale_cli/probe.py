"""Asking an admin port, with the standard library alone: containers run this every few seconds, beside the daemon."""

import os
import sys

DEFAULT_PORT = "9464"
WAIT_S = 3.0
OK, NEGATIVE = 0, 4
"""Exit codes; ``shale.service.exit_codes`` has all of them and costs more to import than the question to ask."""


def probe(admin: str | None = None, endpoint: str = "readyz", wait_s: float = WAIT_S) -> int:
    """0 if the daemon says that it is well, 4 with a line on stderr if it says no or nothing."""
    address = admin or f"127.0.0.1:{os.environ.get('SHALE_ADMIN__PORT', DEFAULT_PORT)}"
    status, body = ask(address, endpoint, wait_s)
    if status == 200:
        return OK
    sys.stderr.write(f"shale: {address}/{endpoint}: {body}\n")
    return NEGATIVE


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
