"""How one request to a store goes wrong: what both stores that misbehave on purpose understand.

``SimStore`` is the way of a simulated process to its store, under virtual time and with a network that outlives the
process; ``FaultyStore`` wraps any store under real time.
"""

from enum import Enum


class Fault(Enum):
    """How one request goes wrong."""

    BEFORE = "fails, and nothing happened"
    AFTER = "happens, and the answer is lost"
    LATE = "fails, and happens later"


def matches(op: str | None, key_part: str, request_op: str, request_key: str) -> bool:
    """Whether a request is meant: ``None`` and ``"*"`` are any op, the empty text is in every key."""
    return (op is None or op in {request_op, "*"}) and key_part in request_key
