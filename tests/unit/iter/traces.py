"""Version traces as text: ``v1@2`` a value, ``D@4`` a tombstone, ``M5@5`` an operand."""

from collections.abc import Sequence

from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry


def concatenate(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


def row(text: str) -> Entry:
    """``v1@2`` a value, ``D@4`` a tombstone, ``M5@5`` an operand; ``!10`` after it: expires at 10."""
    body, _, expiry = text.partition("!")
    name, seq = body.split("@")
    kinds = {"D": FLAG_TOMBSTONE, "M": FLAG_MERGE}
    flags = kinds.get(name[0], 0) | (FLAG_EXPIRE_TS if expiry else 0)
    return Entry(b"k", b"" if name == "D" else name.encode(), int(seq), flags, 0, int(expiry or 0))


TRACES = [
    ("D@4 v1@2 v0@1", 3, False, "D@4 v1@2"),
    ("D@4 v1@2 v0@1", 3, True, "D@4 v1@2"),
    ("D@4 v0@1", 9, True, ""),
    ("D@4 v0@1", 9, False, "D@4"),
    ("v@5!10 v@3", 9, False, "D@5"),
    ("v@5!11", 9, False, "v@5!11"),
    ("M5@5!10 M4@4 v@1", 9, False, "vM4@4"),
    ("M5@5 M4@4 v3@3", 4, False, "M5@5 v3M4@4"),
    ("M5@5 M4@4", 9, True, "M4M5@5"),
    ("M5@5 D@3 v@1", 9, True, "M5@5"),
    ("v2@2 v1@1", None, False, "v2@2"),
    ("D@7 D@6 v@5", 2, True, "D@7 D@6 v@5"),
    ("D@7 D@6 v@5", 6, True, ""),
    ("v@7 D@6 D@5", 1, True, "v@7"),
    ("v@7 D@6 D@5", 1, False, "v@7 D@6 D@5"),
    ("v@5!10 v@3", 9, True, ""),
    ("D@5!3 v@4", None, False, "D@5!3"),
]
