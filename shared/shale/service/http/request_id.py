"""Request ids of clients."""

REQUEST_ID_MAX = 128


def safe_request_id(given: str | None) -> str:
    """Return the request id of a client if it is safe for a log line, else an empty string."""
    if given is None:
        return ""
    return given if len(given) <= REQUEST_ID_MAX and given.isprintable() and given.isascii() else ""
