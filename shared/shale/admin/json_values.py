"""How values are written in JSON, on the command line and over HTTP (docs/operations.md 14)."""

import base64
from datetime import UTC, datetime, timedelta


def b64(data: bytes) -> str:
    """Base64, as JSON carries bytes."""
    return base64.b64encode(data).decode()


def rfc3339(ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339 in UTC."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def time_fields(name: str, ms: int | None) -> dict[str, object]:
    """A moment under two names: for people, and as raw milliseconds."""
    return {name: None if ms is None else rfc3339(ms), f"{name}_ms": ms}
