"""The options of the Redis port, and the limits of its parser."""

from typing import Literal

from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits of one command.

    Args:
        arguments: number of arguments, including the name.
        argument_bytes: bytes of one argument.
        command_bytes: bytes of all arguments, with an overhead for each (``shale.resp.protocol.parser``).
    """

    arguments: int
    argument_bytes: int
    command_bytes: int


READ_PAUSE_BYTES = 64 * 1024
"""Reading pauses while commands run and more input than this is buffered."""

ANSWER_BYTES = 256 * 1024
"""Replies are written after this many bytes, and the client must read them before more commands run."""

BLOCKED_S = 0.005
"""After commands that took so long, other connections run before the next one."""

COMMANDS_AT_ONCE = 256
"""The most commands to execute before other connections run."""

BEFORE_AUTH = ParserLimits(10, 16 * 1024, 32 * 1024)
"""Limits before authentication; enough for AUTH and HELLO."""

ARGUMENTS_MAX = 1 << 20
"""Limit of arguments of one command, as in Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RespOptions:
    """Limits of connections and commands, and the durability of writes.

    Args:
        durability: ``memory``: reply to a write when it is readable; ``durable``: when it is in the WAL.
        max_connections: further connections are refused.
        max_connections_per_address: further connections of one address are refused.
        max_value_bytes: limit of one argument.
        max_command_bytes: limit of all arguments of one command, and of one transaction.
        max_inflight_bytes: limit of buffered commands of all connections together.
        max_batch_rows: limit of keys in one command, and of rows in one reply.
        max_key_bytes: limit of keys that the database writes.
        request_timeout_s: time limit of a command, and of silence within one.
        idle_timeout_s: time limit of silence between commands; 0: none.
        send_timeout_s: a client that reads nothing of its replies for so long is dropped.
        allow_flush: FLUSHDB and FLUSHALL may delete all rows.
    """

    durability: Literal["memory", "durable"] = "memory"
    max_connections: int = 1024
    max_connections_per_address: int = 512
    max_value_bytes: int = 32 << 20
    max_command_bytes: int = 64 << 20
    max_inflight_bytes: int = 128 << 20
    max_batch_rows: int = 100_000
    max_key_bytes: int = 65_535
    request_timeout_s: float = 60.0
    idle_timeout_s: float = 0.0
    send_timeout_s: float = 30.0
    allow_flush: bool = False

    def parser_limits(self) -> ParserLimits:
        """Return the parser limits of authenticated clients."""
        return ParserLimits(ARGUMENTS_MAX, self.max_value_bytes, self.max_command_bytes)
