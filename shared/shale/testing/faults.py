"""How one request to a store fails: the terms of both stores that inject faults.

``SimStore`` connects a simulated process to its store, under virtual time and with a network that outlives the
process; ``FaultyStore`` wraps any store under real time.
"""

from enum import Enum


class Fault(Enum):
    """How one request fails."""

    BEFORE = "fails, and nothing happened"
    AFTER = "happens, and the answer is lost"
    LATE = "fails, and happens later"


def matches(op: str | None, key_part: str, request_op: str, request_key: str) -> bool:
    """Return whether a request matches: ``None`` and ``"*"`` are any op, the empty text is in every key."""
    return (op is None or op in {request_op, "*"}) and key_part in request_key
