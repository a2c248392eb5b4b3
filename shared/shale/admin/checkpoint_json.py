"""A checkpoint as JSON, in one form for the command line and for HTTP.  Fields are only ever added."""

from typing import Any

from shale.admin.json_values import rfc3339
from shale.types import Checkpoint


def checkpoint_json(checkpoint: Checkpoint, now_ms: int) -> dict[str, Any]:
    """Everything that is known of one checkpoint; times without an end are ``None``."""
    return {
        "id": str(checkpoint.id),
        "manifest_id": int(checkpoint.manifest_id),
        "name": checkpoint.name,
        **_moment("create", checkpoint.create_s),
        **_moment("expire", checkpoint.expire_s),
        "state": state_of(checkpoint, now_ms),
    }


def state_of(checkpoint: Checkpoint, now_ms: int) -> str:
    """``no_expiry``, ``active`` or ``expired``: one that has expired keeps nothing and waits for the collector."""
    if not checkpoint.expire_s:
        return "no_expiry"
    return "expired" if checkpoint.is_expired(now_ms) else "active"


def _moment(name: str, seconds: int) -> dict[str, object]:
    ms = seconds * 1000 or None
    return {f"{name}_time": None if ms is None else rfc3339(ms), f"{name}_ms": ms}
