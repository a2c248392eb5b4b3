"""Who may do what on a port: bearer tokens with roles, for HTTP, RESP, the admin port and the console.

A role includes those below it: ``read`` < ``write`` < ``admin``.
"""

from collections.abc import Iterable
from enum import IntEnum
from secrets import compare_digest

from pydantic import SecretStr


class Role(IntEnum):
    """What a token allows: reads, also of the state of the process; writes of rows; administration."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        """The name of the role in settings and messages."""
        return self.name.lower()


TokenRole = tuple[SecretStr, Role]


class AccessTokens:
    """The tokens of one port.

    A port without tokens is open, so that every request may do everything, unless it is ``required`` to have one: then
    no request may do anything.
    """

    __slots__ = ("_required", "_tokens")

    def __init__(self, tokens: Iterable[TokenRole] = (), *, required: bool = False) -> None:
        self._tokens = _encoded(tokens)
        self._required = required

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return not self._tokens and not self._required

    @property
    def is_closed(self) -> bool:
        """Whether a token is required and none is set, so that no request is allowed."""
        return not self._tokens and self._required

    def role_of(self, token: bytes) -> Role | None:
        """Return the highest role of a token; ``None`` if it is unknown.

        The time depends neither on which token matches nor on where a wrong one differs.
        """
        found = 0
        for known, role in self._tokens:
            found = max(found, compare_digest(token, known) * role)
        return Role(found) if found else None

    def replace(self, tokens: Iterable[TokenRole], *, required: bool = False) -> None:
        """Use these tokens from now on, after a reload of the settings.

        No tokens do not open a port that had some, or that required one: a missing secret file would expose the
        database.
        """
        self._tokens = _encoded(tokens) or self._tokens
        self._required = self._required or required


def _encoded(tokens: Iterable[TokenRole]) -> tuple[tuple[bytes, Role], ...]:
    return tuple((token.get_secret_value().encode(), role) for token, role in tokens)
