"""What one client has said so far, and the way of a command from its name to its answer.

No sockets here: ``execute`` takes arguments and gives the answer's bytes.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from shale.engine.batch import WriteBatch
from shale.engine.lifetime import Moment, Ttl
from shale.engine.reads import Reads
from shale.engine.transaction import Transaction
from shale.engine.write_handle import WriteHandle
from shale.errors import AccessDenied, InvalidRequestError, InvalidSequenceNumber, ShaleError, TransactionConflict
from shale.resp.encoder import QUEUED, RESP2, Wire, error
from shale.resp.failures import NOT_AUTHENTICATED, RespError, shown, text_of, unknown_command, wrong_arity
from shale.types import Row

if TYPE_CHECKING:
    from shale.engine.db import Db
    from shale.resp.backend import Backend
    from shale.resp.commands.command import Command

ATTEMPTS_MAX = 100
"""How often a conditional write is tried that meets writes of others each time."""

_BROWSERS = frozenset((b"POST", b"HOST:"))
"""A web page can make a browser send these to a port of this machine, with commands in what follows."""


class Writes(Protocol):
    """What a command writes to: a batch or a transaction."""

    def put(self, key: bytes, value: bytes, *, ttl: Ttl = None, expire_at: Moment | None = None) -> None:
        """Write a value; see ``WriteBatch.put``."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        ...


class Session:
    """One client.

    ``is_locked``: the password is still missing; ``is_closing``: the connection ends after this answer.
    ``unsettled`` is a write whose answer must wait until it is durable.
    """

    __slots__ = (
        "_table",
        "address",
        "backend",
        "created_s",
        "db",
        "id",
        "is_broken",
        "is_closing",
        "is_locked",
        "last_write",
        "lib_name",
        "lib_version",
        "moment",
        "name",
        "queue",
        "queued_bytes",
        "transaction",
        "unsettled",
        "watched",
        "wire",
        "writer",
    )

    def __init__(self, backend: "Backend", table: "Mapping[bytes, Command]", address: str = "") -> None:
        self.backend = backend
        self.db = backend.db
        self.writer: Db
        """Not there on a reader, none of whose commands writes."""
        if backend.writer is not None:
            self.writer = backend.writer
        self._table = table
        self.id = backend.next_id()
        self.address = address
        self.created_s = backend.env.clock.monotonic_s()
        self.name = self.lib_name = self.lib_version = b""
        self.wire: Wire = RESP2
        self.is_locked = backend.has_password
        self.is_closing = False
        self.last_write: WriteHandle | None = None
        self.unsettled: WriteHandle | None = None
        self.queue: list[tuple[Command, list[bytes]]] | None = None
        self.queued_bytes = 0
        self.is_broken = False
        """A command of the transaction could not be queued."""
        self.watched: dict[bytes, int | None] = {}
        self.moment: Reads | None = None
        """The state in which the queue is being run, and
        """
        self.transaction: Transaction | None = None
        """the transaction, if this is no reader."""

    @property
    def reads(self) -> Reads:
        """Where the command at hand looks."""
        return self.db if self.moment is None else self.moment

    async def execute(self, args: list[bytes]) -> bytes:
        """Run or queue one command and return its answer."""
        name = args[0]
        command = self._table.get(name) or self._table.get(name.upper())
        if command is None:
            if name.upper() in _BROWSERS:
                self.is_closing = True
            return self._refuse("other", NOT_AUTHENTICATED if self.is_locked else unknown_command(args))
        count, arity = len(args), command.arity
        if self.is_locked and not command.is_open:
            return self._refuse(command.name, NOT_AUTHENTICATED)
        if count != arity and (arity >= 0 or count < -arity):
            return self._refuse(command.name, wrong_arity(command.name))
        if self.queue is not None and not command.is_immediate:
            return self._enqueue(command, args)
        return await self.run(command, args)

    async def run(self, command: "Command", args: list[bytes]) -> bytes:
        """Run a command whose arguments were counted.

        Raises:
            ShaleError: while a transaction is run, what is not the client's mistake: the rest must not be done without
                this command.
        """
        self.backend.calls[command.name] += 1
        try:
            return await command.handler(self, args)
        except RespError as refusal:
            self.backend.errors[command.name] += 1
            return error(str(refusal))
        except ShaleError as failure:
            self.backend.errors[command.name] += 1
            if self.moment is not None and not _is_clients(failure):
                raise
            return error(text_of(failure))

    async def atomically(self, work: Callable[[Reads, Writes], Awaitable[bytes]]) -> bytes:
        """Read once and then write as if nobody else did.

        What is in memory is read without a wait, so as a rule nobody has written in between: then the next sequence
        number is still free, and a batch takes it.  Else there is a transaction, which sees only what conflicts.

        Args:
            work: reads from the one and writes to the other; called again after a conflict, so it must leave nothing
                behind but what it wrote.

        Raises:
            RespError: others wrote the same every time.
        """
        if self.transaction is not None:
            return await work(self.transaction, self.transaction)
        batch = WriteBatch(max_key_bytes=self.backend.options.max_key_bytes)
        next_seq = self.writer.last_seq + 1
        answer = await work(self.db, batch)
        if not len(batch):
            return answer
        try:
            self.wrote(await self.writer.write(batch, seq=next_seq))
        except InvalidSequenceNumber:
            return await self.in_transaction(lambda transaction: work(transaction, transaction))
        return answer

    async def in_transaction(self, work: Callable[[Transaction], Awaitable[bytes]]) -> bytes:
        """Read and write in a transaction of its own; see ``atomically``."""
        for _ in range(ATTEMPTS_MAX):
            transaction = await self.writer.transaction("serializable")
            try:
                answer = await work(transaction)
                handle = await transaction.commit()
            except TransactionConflict:
                continue
            finally:
                await transaction.close()
            if handle is not None:
                self.wrote(handle)
            return answer
        raise RespError(f"TRYAGAIN others wrote the same keys {ATTEMPTS_MAX} times in between; nothing was written")

    async def live_row(self, reads: Reads, key: bytes) -> Row | None:
        """The row of a key, unless it has expired."""
        row = await reads.get_row(key)
        if row is None or row.expire_ts is None or row.expire_ts > self.backend.env.clock.now_ms():
            return row
        # Of merged operands the first to expire is known: without it there may still be a value.
        return await reads.get_row(key, hide_expired=True)

    def wrote(self, handle: WriteHandle) -> None:
        """A write of this client has happened."""
        self.last_write = handle
        if self.backend.options.durability == "durable":
            self.unsettled = handle

    def unlock(self) -> None:
        """The password was right."""
        self.is_locked = False

    def forget_transaction(self) -> None:
        """Leave MULTI, and watch nothing any more."""
        self.queue = None
        self.queued_bytes = 0
        self.is_broken = False
        self.watched = {}

    def _enqueue(self, command: "Command", args: list[bytes]) -> bytes:
        assert self.queue is not None
        if not command.is_queueable:
            return self._refuse(command.name, f"ERR {shown(args[0])} is not allowed in transactions")
        size = sum(map(len, args)) + 48 * len(args)
        options = self.backend.options
        if self.queued_bytes + size > options.max_command_bytes or len(self.queue) >= options.max_batch_rows:
            return self._refuse(command.name, "ERR the transaction is too large")
        self.queued_bytes += size
        self.queue.append((command, args))
        return QUEUED

    def _refuse(self, name: str, text: str) -> bytes:
        self.backend.calls[name] += 1
        self.backend.errors[name] += 1
        if self.queue is not None:
            self.is_broken = True
        return error(text)


def _is_clients(failure: ShaleError) -> bool:
    """Whether the client asked for something impossible; what the store refuses to us is no fault of its."""
    return isinstance(failure, InvalidRequestError) and not isinstance(failure, AccessDenied)
