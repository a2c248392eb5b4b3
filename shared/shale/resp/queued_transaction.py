"""The transaction that a client queues between MULTI and EXEC, and the keys that it watches."""

from typing import Any

from shale.resp.command import Command
from shale.resp.errors import RespError, shown
from shale.resp.options import RespOptions
from shale.resp.protocol.parser import ARGUMENT_OVERHEAD_BYTES


class QueuedTransaction:
    """What one client has queued and watches.

    ``commands``: with their arguments; ``None`` outside MULTI.
    ``is_aborted``: a command was rejected, so EXEC aborts.
    ``watched``: the sequence number of the row of each watched key, ``None`` if it has none.
    """

    __slots__ = ("_options", "_queued_bytes", "_watched_bytes", "commands", "is_aborted", "watched")

    def __init__(self, options: RespOptions) -> None:
        self._options = options
        self._queued_bytes = self._watched_bytes = 0
        self.commands: list[tuple[Command[Any], list[bytes]]] | None = None
        self.is_aborted = False
        self.watched: dict[bytes, int | None] = {}

    @property
    def kept_bytes(self) -> int:
        """The bytes of the commands and keys of a transaction that is not executed yet."""
        return self._queued_bytes + self._watched_bytes

    def add(self, command: Command[Any], args: list[bytes]) -> str | None:
        """Queue a command, after MULTI; return the error if it cannot be queued."""
        assert self.commands is not None, "commands are queued after MULTI"
        if not command.is_queueable:
            return f"ERR {shown(args[0])} is not allowed in transactions"
        size = _size_bytes(args)
        options = self._options
        if self.kept_bytes + size > options.max_command_bytes or len(self.commands) >= options.max_batch_rows:
            return "ERR the transaction is too large"
        self._queued_bytes += size
        self.commands.append((command, args))
        return None

    def add_watched(self, keys: list[bytes]) -> list[bytes]:
        """Count keys, and return those that are not watched yet, each once; the caller reads and adds their rows.

        Raises:
            RespError: the keys are too many, or too large.
        """
        most = self._options.max_batch_rows
        if len(self.watched) + len(keys) > most:
            raise RespError(f"ERR at most {most} keys can be watched")
        added = [key for key in dict.fromkeys(keys) if key not in self.watched]
        size = _size_bytes(added)
        if self._watched_bytes + size > self._options.max_command_bytes:
            raise RespError("ERR the watched keys are too large")
        self._watched_bytes += size
        return added

    def reset(self) -> None:
        """Leave MULTI and stop watching keys."""
        self.commands = None
        self._queued_bytes = 0
        self.is_aborted = False
        self.unwatch()

    def unwatch(self) -> None:
        """Stop watching keys."""
        self.watched = {}
        self._watched_bytes = 0


def _size_bytes(args: list[bytes]) -> int:
    return sum(map(len, args)) + ARGUMENT_OVERHEAD_BYTES * len(args)
