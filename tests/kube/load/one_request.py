"""One request from the network of a node: ``python -m tests.kube.load.one_request METHOD URL TOKEN``, body on stdin."""

import sys
import urllib.error
import urllib.request

TIMEOUT_S = 120.0


def main() -> None:
    """Print the status on a line, and then the body of the response."""
    method, url, token = sys.argv[1:]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, sys.stdin.buffer.read() or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    sys.stdout.write(f"{status}\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(body)


if __name__ == "__main__":
    main()
