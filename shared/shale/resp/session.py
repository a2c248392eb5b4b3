"""The state of one client, and the execution of its commands.

This module does no I/O on sockets: ``execute`` takes arguments and returns the bytes of the reply.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from shale.engine.read.reads import Reads
from shale.errors import AccessDenied, InvalidRequestError, ShaleError
from shale.resp import latency
from shale.resp.atomic_writes import AtomicWrites
from shale.resp.client_access import ClientAccess
from shale.resp.command import DENY_OOM, Command
from shale.resp.errors import (
    NOT_AUTHENTICATED,
    OUT_OF_MEMORY,
    RespError,
    error_text,
    unknown_command,
    wrong_arity,
)
from shale.resp.protocol.encoder import QUEUED, RESP2, RespEncoding, error
from shale.resp.queued_transaction import QueuedTransaction
from shale.resp.row_reader import RowReader

if TYPE_CHECKING:
    from shale.resp.backend import Backend

_BROWSERS = frozenset((b"POST", b"HOST:"))
"""First words of HTTP requests: a web page can make a browser send them to this port, with commands in the body."""

Handler = Callable[["RespSession", list[bytes]], Awaitable[bytes]]
RespCommand: TypeAlias = Command["RespSession"]


class RespSession:
    """The session of one client.

    ``access``, ``queued``, ``rows`` and ``writes``: what it may do, has queued, reads and writes.
    ``snapshot``: the state that EXEC reads while it runs the queue.
    ``is_closing``: the connection closes after this reply.
    ``failure``: the kind of the last error that the client did not cause, since the last replies were sent.
    ``ran`` counts the commands that ran since the last replies were sent, by category.
    """

    __slots__ = (
        "_table",
        "access",
        "backend",
        "created_s",
        "db",
        "encoding",
        "failure",
        "id",
        "is_closing",
        "lib_name",
        "lib_version",
        "name",
        "queued",
        "ran",
        "rows",
        "snapshot",
        "writes",
    )

    def __init__(self, backend: "Backend", table: Mapping[bytes, RespCommand], address: str = "") -> None:
        self.backend = backend
        self.db = backend.db
        self._table = table
        self.id = backend.next_id()
        self.created_s = backend.env.clock.monotonic_s()
        self.name = self.lib_name = self.lib_version = b""
        self.encoding: RespEncoding = RESP2
        self.access = ClientAccess(backend, address)
        self.queued = QueuedTransaction(backend.options)
        self.rows = RowReader(backend)
        self.writes = AtomicWrites(backend)
        self.snapshot: Reads | None = None
        self.failure: str | None = None
        self.ran = [0] * len(latency.CATEGORIES)
        self.is_closing = False

    @property
    def reads(self) -> Reads:
        """The source of reads of the current command."""
        return self.db if self.snapshot is None else self.snapshot

    async def execute(self, args: list[bytes]) -> bytes:
        """Run or queue one command and return its reply."""
        name = args[0]
        command = self._table.get(name) or self._table.get(name.upper())
        if command is None:
            if name.upper() in _BROWSERS:
                self.is_closing = True
            return self._refuse("other", NOT_AUTHENTICATED if self.access.needs_auth else unknown_command(args))
        access = self.access
        refusal = access.refusal(command)
        if refusal is not None:
            if access.needs_auth:  # a reload has given the open port a token
                self.queued.reset()
            return self._deny(command, *refusal)
        count, arity = len(args), command.arity
        if count != arity and (arity >= 0 or count < -arity):
            return self._refuse(command.name, wrong_arity(command.name))
        problem = access.use_quota(command, args)
        if problem is not None:
            return self._deny(command, "quota", problem)
        if self.backend.memory.account.is_full and DENY_OOM in command.flags:
            self.backend.memory.account.refuse()
            return self._refuse(command.name, OUT_OF_MEMORY)
        if self.queued.commands is not None and not command.is_immediate:
            problem = self.queued.add(command, args)
            return QUEUED if problem is None else self._refuse(command.name, problem)
        return await self.run(command, args)

    async def run(self, command: RespCommand, args: list[bytes]) -> bytes:
        """Run a command whose arity was checked.

        Raises:
            ShaleError: within EXEC, an error that the client did not cause; the other commands of the transaction must
                not be applied without this one.
        """
        self.backend.calls[command.name] += 1
        self.ran[command.category] += 1
        # Reads of an earlier command took it.  They have ended, and a read of this one may need it in another task.
        self.backend.memory.release_values()
        try:
            return await command.handler(self, args)
        except RespError as refusal:
            self.backend.errors[command.name] += 1
            return error(str(refusal))
        except ShaleError as failure:
            self.backend.errors[command.name] += 1
            if not _is_client_error(failure):
                self.backend.failures[command.name] += 1
                self.failure = failure.kind
                if self.snapshot is not None:
                    raise
            return error(error_text(failure))

    def count_failure(self, args: list[bytes], error_type: str) -> None:
        """Count a command that ended with neither a reply nor an error of the engine."""
        name = self.name_of(args)
        self.backend.errors[name] += 1
        self.backend.failures[name] += 1
        self.failure = error_type

    def name_of(self, args: list[bytes]) -> str:
        """Return the name of a command, as metrics have it."""
        command = self._command(args[0])
        return "other" if command is None else command.name

    def category_of(self, args: list[bytes]) -> int:
        """Return the category of a command."""
        command = self._command(args[0])
        return latency.OTHER if command is None else command.category

    def _command(self, name: bytes) -> RespCommand | None:
        return self._table.get(name) or self._table.get(name.upper())

    def _deny(self, command: RespCommand, error_type: str, text: str) -> bytes:
        """Refuse a command that the client may not run."""
        if command.is_administration:
            self.backend.audit.refused(error_type, **self.access.audit_fields(command.name))
        return self._refuse(command.name, text)

    def _refuse(self, name: str, text: str) -> bytes:
        self.backend.calls[name] += 1
        self.backend.errors[name] += 1
        if self.queued.commands is not None:
            self.queued.is_aborted = True
        return error(text)


def _is_client_error(failure: ShaleError) -> bool:
    """Return whether the client caused the error.  Store access errors are the server's fault."""
    return isinstance(failure, InvalidRequestError) and not isinstance(failure, AccessDenied)
