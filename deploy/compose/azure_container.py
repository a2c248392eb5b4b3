"""Create a container in Azurite: ``azure_container.py ENDPOINT NAME``.  The account is the emulator's own."""

import base64
import datetime
import hashlib
import hmac
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The published key of the emulator's only account: not a secret."""
VERSION = "2021-08-06"
EXISTS = 409
TRIES = 60
"""One in a second, until the emulator listens."""


def create_container(endpoint: str, name: str) -> None:
    """Create a container if it does not exist.

    Raises:
        OSError: the server cannot be reached, or rejects the request.
    """
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    path = f"{urlsplit(endpoint).path}/{name}"
    headers = {"x-ms-date": date, "x-ms-version": VERSION}
    canonical = "\n".join(f"{key}:{value}" for key, value in sorted(headers.items()))
    text = f"PUT{chr(10) * 12}{canonical}\n/{ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(
        f"{endpoint}/{name}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {ACCOUNT}:{signature}"},
    )
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError as error:
        if error.code != EXISTS:
            raise


def main(endpoint: str, name: str) -> None:
    """Create a container, soon after the start of the emulator.

    Raises:
        OSError: the server cannot be reached for a minute, or rejects the request.
    """
    for left in reversed(range(TRIES)):
        try:
            create_container(endpoint, name)
        except urllib.error.HTTPError:
            raise
        except OSError:
            if not left:
                raise
            time.sleep(1)
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
