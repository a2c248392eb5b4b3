"""What one client may do: its token, role and quota."""

from typing import TYPE_CHECKING, Any

from shale.resp.command import Command
from shale.resp.errors import NOT_AUTHENTICATED, no_permission
from shale.service.access import Quota, Role
from shale.service.audit import NO_ROLE

if TYPE_CHECKING:
    from shale.resp.backend import Backend

DEFAULT_USER = b"default"
"""The user of clients that authenticate with a password alone, and of those that need none."""
_UNCOUNTED = frozenset(("multi", "exec", "discard"))
"""Commands without a quota: a client that pipelines a transaction whose MULTI is refused would execute its commands one
by one.  Its other commands are counted, and one that is refused aborts the transaction."""


class ClientAccess:
    """The access of one client.

    ``role``: that of its token, ``None`` if it may run all commands.
    ``user``: the name that error messages show.
    ``fingerprint``: that of its token, for the audit log.
    ``quota``: that of its token; without one, commands count in the quota of the role that they need.
    """

    __slots__ = ("_backend", "_has_token", "address", "fingerprint", "quota", "role", "user")

    def __init__(self, backend: "Backend", address: str) -> None:
        self._backend = backend
        self._has_token = False
        self.address = address
        self.role: Role | None = None
        self.user = DEFAULT_USER
        self.fingerprint: str | None = None
        self.quota: Quota | None = None

    @property
    def needs_auth(self) -> bool:
        """Whether the client has to authenticate, also because a reload has given its open port the first token."""
        return not self._has_token and self._backend.has_password

    def set_authenticated(self, user: bytes, role: Role) -> None:
        """Mark the client as authenticated."""
        self._has_token = True
        self.role = role if role < Role.ADMIN else None
        self.user = user

    def refusal(self, command: Command[Any]) -> tuple[str, str] | None:
        """Return why the client may not run a command: the type of the error, and its text."""
        if not self._has_token and not command.is_open and self.needs_auth:
            return "unauthorized", NOT_AUTHENTICATED
        if self.role is not None and self.role < command.role:
            return "forbidden", no_permission(self.user, command.name)
        return None

    def use_quota(self, command: Command[Any], args: list[bytes]) -> str | None:
        """Count a command; return the error if the quota of the client is used up."""
        quotas = self._backend.quotas
        if quotas is None or not quotas.is_limiting or command.is_open or command.name in _UNCOUNTED:
            return None
        quota = quotas.of(command.role, None) if self.quota is None else self.quota
        pause_s = quota.admit()
        if pause_s is not None:
            return f"TRYAGAIN {quota.refusal(pause_s)}"
        quota.take_bytes(sum(map(len, args)))
        return None

    def audit_fields(self, name: str) -> dict[str, object]:
        """Return who calls a command, and from where; the fields are those of calls of the admin port."""
        role = Role.ADMIN if self.role is None else self.role
        return {
            "role": NO_ROLE if self.fingerprint is None else role.label,
            "fingerprint": self.fingerprint,
            "client": self.address or None,
            "method": "RESP",
            "path": name.upper(),
            "object": None,
            "status": None,
        }
