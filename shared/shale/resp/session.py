"""The state of one client, and the execution of its commands.

This module does no I/O on sockets: ``execute`` takes arguments and returns the bytes of the reply.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from shale.engine.read.reads import Reads
from shale.engine.txn.transaction import Transaction
from shale.engine.write.batch import WriteBatch
from shale.engine.write.write_handle import WriteHandle
from shale.errors import AccessDenied, InvalidRequestError, InvalidSequenceNumber, ShaleError, TransactionConflict
from shale.resp import latency
from shale.resp.command import DENY_OOM, Command
from shale.resp.composed import ComposedWrites, Writes
from shale.resp.errors import (
    NOT_AUTHENTICATED,
    OUT_OF_MEMORY,
    RespError,
    error_text,
    no_permission,
    shown,
    unknown_command,
    wrong_arity,
)
from shale.resp.protocol.encoder import QUEUED, RESP2, RespEncoding, error
from shale.service.access import Quota, Quotas, Role
from shale.service.audit import NO_ROLE
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.types import Row

if TYPE_CHECKING:
    from shale.engine.db import Db
    from shale.resp.backend import Backend

ATTEMPTS_MAX = 100
"""Limit of attempts of a conditional write that conflicts with other writes."""

_COPIES_OF_VALUE = 2
"""The value, and the reply."""

DEFAULT_USER = b"default"
"""The user of clients that authenticate with a password alone, and of those that need none."""
_BROWSERS = frozenset((b"POST", b"HOST:"))
"""First words of HTTP requests: a web page can make a browser send them to this port, with commands in the body."""

_UNCOUNTED = frozenset(("multi", "exec", "discard"))
"""Commands without a quota: a client that pipelines a transaction whose MULTI is refused would execute its commands one
by one.  Its other commands are counted, and one that is refused aborts the transaction."""

Handler = Callable[["RespSession", list[bytes]], Awaitable[bytes]]
RespCommand: TypeAlias = Command["RespSession"]


class RespSession:
    """The session of one client.

    ``role``: that of its token, ``None`` if it may run all commands;
    ``is_closing``: the connection closes after this reply.
    ``pending_durable`` is a write whose reply must wait until it is durable.
    ``ran`` counts the commands that ran since the last replies were sent, by category.
    """

    __slots__ = (
        "_has_token",
        "_table",
        "address",
        "backend",
        "composed",
        "created_s",
        "db",
        "encoding",
        "failure",
        "fingerprint",
        "id",
        "is_aborted",
        "is_closing",
        "last_write",
        "lib_name",
        "lib_version",
        "name",
        "pending_durable",
        "queue",
        "queued_bytes",
        "quota",
        "ran",
        "reserved",
        "role",
        "snapshot",
        "transaction",
        "user",
        "watched",
        "watched_bytes",
        "writer",
    )

    def __init__(self, backend: "Backend", table: Mapping[bytes, RespCommand], address: str = "") -> None:
        self.backend = backend
        self.db = backend.db
        self.writer: Db
        """Not set on a reader, which has no commands that write."""
        if backend.writer is not None:
            self.writer = backend.writer
        self._table = table
        self.id = backend.next_id()
        self.address = address
        self.created_s = backend.env.clock.monotonic_s()
        self.name = self.lib_name = self.lib_version = b""
        self.encoding: RespEncoding = RESP2
        self._has_token = False
        self.role: Role | None = None
        self.user = DEFAULT_USER
        self.fingerprint: str | None = None
        """That of its token, for the audit log."""
        self.quota: Quota | None = None
        """That of its token; without one, commands count in the quota of the role that they need."""
        self.failure: str | None = None
        """The kind of the last error that the client did not cause, since the last replies were sent."""
        self.reserved = backend.memory.scans.share()
        """The memory of large replies while they are made."""
        self.ran = [0] * len(latency.CATEGORIES)
        self.is_closing = False
        self.last_write: WriteHandle | None = None
        self.pending_durable: WriteHandle | None = None
        self.queue: list[tuple[RespCommand, list[bytes]]] | None = None
        self.queued_bytes = self.watched_bytes = 0
        self.is_aborted = False
        """A command of the transaction was rejected, so EXEC aborts."""
        self.watched: dict[bytes, int | None] = {}
        self.snapshot: Reads | None = None
        """The state that EXEC reads while it runs the queue."""
        self.composed = ComposedWrites(backend.composed)
        self.transaction: Transaction | None = None
        """The transaction of EXEC; ``None`` on a reader."""

    @property
    def needs_auth(self) -> bool:
        """Whether the client has to authenticate, also because a reload has given its open port the first token."""
        return not self._has_token and self.backend.has_password

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
            return self._refuse("other", NOT_AUTHENTICATED if self.needs_auth else unknown_command(args))
        count, arity = len(args), command.arity
        if not self._has_token and not command.is_open and self.needs_auth:
            self.reset_transaction()
            return self._deny(command, "unauthorized", NOT_AUTHENTICATED)
        if self.role is not None and self.role < command.role:
            return self._deny(command, "forbidden", no_permission(self.user, command.name))
        if count != arity and (arity >= 0 or count < -arity):
            return self._refuse(command.name, wrong_arity(command.name))
        quotas = self.backend.quotas
        if quotas is not None and quotas.is_limiting:
            problem = self._use_quota(quotas, command, args)
            if problem is not None:
                return self._deny(command, "quota", problem)
        if self.backend.memory.account.is_full and DENY_OOM in command.flags:
            self.backend.memory.account.refuse()
            return self._refuse(command.name, OUT_OF_MEMORY)
        if self.queue is not None and not command.is_immediate:
            return self._enqueue(command, args)
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

    async def atomically(self, work: Callable[[Reads, Writes], Awaitable[bytes]]) -> bytes:
        """Read and write atomically.

        Reads from memory do not wait, so usually no other write has happened in between: the next sequence number is
        still free, and a batch claims it.  Otherwise the work runs again in a transaction, which only real conflicts
        abort.

        Args:
            work: reads from its first argument and writes to its second; it is called again after a conflict, so it
                must have no other effects.

        Raises:
            RespError: every attempt conflicted with another write, or the values need too much memory.
        """
        if self.transaction is not None:
            return await work(self.transaction, self.composed.to(self.transaction))
        batch = WriteBatch(max_key_bytes=self.backend.options.max_key_bytes)
        next_seq = self.writer.status.last_seq + 1
        try:
            answer = await self._compose(work, self.db, batch)
            if len(batch):
                self.record_write(await self.writer.write(batch, seq=next_seq))
        except InvalidSequenceNumber:
            del batch
            answer = await self.in_transaction(lambda transaction: self._compose(work, transaction, transaction))
        finally:
            self.composed.close()  # after the write, which may wait for memory of its own
        return answer

    async def _compose(self, work: Callable[[Reads, Writes], Awaitable[bytes]], reads: Reads, target: Writes) -> bytes:
        """Read, and write to a target; the values count until they are written.

        Raises:
            RespError: those of all clients together need too much memory.
        """
        self.composed.close()  # of an attempt that conflicted
        answer = await work(reads, self.composed.to(target))
        if self.backend.composed.size_bytes > self.backend.options.max_inflight_bytes:
            raise RespError("TRYAGAIN the values of running commands need too much memory; nothing was written")
        return answer

    async def in_transaction(self, work: Callable[[Transaction], Awaitable[bytes]]) -> bytes:
        """Read and write in a new transaction; see ``atomically``."""
        for _ in range(ATTEMPTS_MAX):
            self.backend.memory.release_values()  # of the attempt before
            transaction = await self.writer.transaction("serializable")
            try:
                answer = await work(transaction)
                handle = await transaction.commit()
            except TransactionConflict:
                continue
            finally:
                await transaction.close()
            if handle is not None:
                self.record_write(handle)
            return answer
        raise RespError(f"TRYAGAIN {ATTEMPTS_MAX} attempts conflicted with other writes; nothing was written")

    async def reserve(self, size_bytes: int) -> None:
        """Wait for the memory of a large reply, or of a scan; it is kept until the reply is written.

        Nothing else is kept during the wait: two clients that each keep a part might wait for each other.  So the
        caller has dropped what it read.  Of more memory than there is, all is taken.
        """
        if not self._has_reserved(size_bytes):
            self.reserved.reduce_to(0)
            self.backend.memory.release_values()
            await self.reserved.take(min(size_bytes, self.backend.memory.scans.capacity_bytes))

    def _has_reserved(self, size_bytes: int) -> bool:
        """Return whether there is memory for a reply or a scan."""
        return self.reserved.size_bytes >= min(size_bytes, self.backend.memory.scans.capacity_bytes)

    async def row_for_reply(self, reads: Reads, key: bytes, *, length_of: Callable[[bytes], int] = len) -> Row | None:
        """Return the row of a key, with memory for the reply that has its value, or a part of it; see ``live_row``.

        Args:
            reads: where to read.
            key: the key.
            length_of: returns how many bytes of a value are in the reply.
        """
        while True:
            row = await self.live_row(reads, key)
            size_bytes = 0 if row is None else _COPIES_OF_VALUE * length_of(row.value)
            if size_bytes <= _COPIES_OF_VALUE * LARGE_VALUE_BYTES or self._has_reserved(size_bytes):
                return row
            row = None
            await self.reserve(size_bytes)

    async def live_row(self, reads: Reads, key: bytes) -> Row | None:
        """Return the row of a key, unless it has expired."""
        row = await reads.get_row(key)
        if row is None or row.expire_ts is None or row.expire_ts > self.backend.env.clock.now_ms():
            return row
        # A merged row has the earliest expiry of its operands: without that operand there may still be a value.
        return await reads.get_row(key, hide_expired=True)

    def record_write(self, handle: WriteHandle) -> None:
        """Remember a write of this client, for WAITAOF and for replies that wait for durability."""
        self.last_write = handle
        if self.backend.options.durability == "durable":
            self.pending_durable = handle

    def set_authenticated(self, user: bytes, role: Role) -> None:
        """Mark the client as authenticated; ``user`` is the name that error messages show."""
        self._has_token = True
        self.role = role if role < Role.ADMIN else None
        self.user = user

    def reset_transaction(self) -> None:
        """Leave MULTI and stop watching keys."""
        self.queue = None
        self.queued_bytes = 0
        self.is_aborted = False
        self.unwatch()

    def unwatch(self) -> None:
        """Stop watching keys."""
        self.watched = {}
        self.watched_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """The bytes of the commands and keys of a transaction that is not executed yet."""
        return self.queued_bytes + self.watched_bytes

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

    def _deny(self, command: RespCommand, error_type: str, text: str) -> bytes:
        """Refuse a command that the client may not run."""
        if command.is_administration:
            self.backend.audit.refused(error_type, **self.audit_fields(command.name))
        return self._refuse(command.name, text)

    def _use_quota(self, quotas: Quotas, command: RespCommand, args: list[bytes]) -> str | None:
        """Count a command; return the error if the quota of the client is used up."""
        if command.is_open or command.name in _UNCOUNTED:
            return None
        quota = quotas.of(command.role, None) if self.quota is None else self.quota
        pause_s = quota.admit()
        if pause_s is not None:
            return f"TRYAGAIN {quota.refusal(pause_s)}"
        quota.take_bytes(sum(map(len, args)))
        return None

    def _enqueue(self, command: RespCommand, args: list[bytes]) -> bytes:
        assert self.queue is not None
        if not command.is_queueable:
            return self._refuse(command.name, f"ERR {shown(args[0])} is not allowed in transactions")
        size = sum(map(len, args)) + 48 * len(args)
        options = self.backend.options
        if self.kept_bytes + size > options.max_command_bytes or len(self.queue) >= options.max_batch_rows:
            return self._refuse(command.name, "ERR the transaction is too large")
        self.queued_bytes += size
        self.queue.append((command, args))
        return QUEUED

    def _refuse(self, name: str, text: str) -> bytes:
        self.backend.calls[name] += 1
        self.backend.errors[name] += 1
        if self.queue is not None:
            self.is_aborted = True
        return error(text)


def _is_client_error(failure: ShaleError) -> bool:
    """Return whether the client caused the error.  Store access errors are the server's fault."""
    return isinstance(failure, InvalidRequestError) and not isinstance(failure, AccessDenied)
