"""What the processes of the check share."""

import resource

TOKEN = "token-of-honest-clients"
AUTHORIZED = b"authorization: Bearer " + TOKEN.encode() + b"\r\n"
LARGE_KEY = b"large"


def raise_open_files() -> None:
    """Allow this process and its children as many open files as the system does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
