"""An entry of the command table."""

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Generic, TypeVar

from shale.core.lazy_dataclass import dataclass
from shale.resp import latency
from shale.service.access import Role

SessionT = TypeVar("SessionT")
"""The session that a handler gets; a parameter, because sessions find their commands in the table."""

DENY_OOM = "denyoom"
"""The flag of commands that take memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[SessionT]):
    """One entry of the command table.

    Args:
        name: in lower case.
        arity: number of arguments including the name; negative: at least that many.
        handler: gets all arguments, the name first, and returns the encoded reply.
        group: the group that Redis assigns it to.
        summary: one line of documentation.
        flags: the flags of ``COMMAND INFO``.
        keys: positions of the first and the last key and the step between keys; zeros without keys.
        is_open: allowed before authentication.
        is_immediate: runs at once within MULTI, instead of being queued.
        is_queueable: allowed within MULTI.
        is_administration: needs the role admin, if clients have roles.
        is_scan: takes longer the more rows there are.

    ``category`` is that of its latency (``shale.resp.latency``).
    """

    name: str
    arity: int
    handler: Callable[[SessionT, list[bytes]], Awaitable[bytes]]
    group: str
    summary: str
    flags: tuple[str, ...] = ()
    keys: tuple[int, int, int] = (0, 0, 0)
    is_open: bool = False
    is_immediate: bool = False
    is_queueable: bool = True
    is_administration: bool = False
    is_scan: bool = False
    category: int = field(init=False)

    def __post_init__(self) -> None:
        if self.is_scan:
            category = latency.SCAN
        elif "write" in self.flags or self.name == "exec":
            category = latency.WRITE
        else:
            category = latency.READ if "readonly" in self.flags else latency.OTHER
        object.__setattr__(self, "category", category)

    @property
    def role(self) -> Role:
        """The lowest role of clients that may run it."""
        if self.is_administration:
            return Role.ADMIN
        return Role.WRITE if "write" in self.flags else Role.READ
