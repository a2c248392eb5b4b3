"""Hashes of bearer tokens: settings may hold one in place of the token.

A hash is ``sha256:`` and 64 hexadecimal digits.  One round of SHA-256 without salt is enough for a random token: all
values of 128 bits cannot be tried.  It does not protect a password that a person chose.
"""

import re
from hashlib import sha256

PREFIX = "sha256:"
_HASH = re.compile(r"sha256:[0-9a-fA-F]{64}")


def is_token_hash(text: str) -> bool:
    """Return whether a text is the hash of a token, or meant to be one."""
    return text.startswith(PREFIX)


def is_valid_token_hash(text: str) -> bool:
    """Return whether a text has the form of a hash."""
    return _HASH.fullmatch(text) is not None


def token_hash(token: str) -> str:
    """Return the hash of a token, as settings hold it."""
    return f"{PREFIX}{sha256(token.encode()).hexdigest()}"


def digest_of_token(token: bytes) -> bytes:
    """Return the digest of a token that a client sent."""
    return sha256(token).digest()


def digest_of_setting(text: str) -> bytes:
    """Return the digest of a setting, which is a token or the hash of one."""
    return bytes.fromhex(text.removeprefix(PREFIX)) if is_token_hash(text) else digest_of_token(text.encode())
