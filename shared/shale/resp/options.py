"""What the operator decides about the Redis port."""

from dataclasses import dataclass
from typing import Literal

from shale.resp.limits import ARGUMENTS_MAX, ParserLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class RespOptions:
    """Limits, and what a write waits for.

    Args:
        durability: ``memory``: a write is answered when it is readable; ``durable``: when a crash cannot undo it.
        max_connections: more are refused.
        max_value_bytes: the longest argument of a command.
        max_command_bytes: all arguments of a command together, and all of a transaction.
        max_inflight_bytes: what all connections together may keep of commands that are not complete or not run.
        max_batch_rows: keys in one command, and rows in one answer.
        max_key_bytes: the longest key that the database writes.
        request_timeout_s: how long a command may wait, and a client stay silent in the middle of one.
        idle_timeout_s: how long a connection may be silent between commands; 0: for ever.
    """

    durability: Literal["memory", "durable"] = "memory"
    max_connections: int = 1024
    max_value_bytes: int = 32 << 20
    max_command_bytes: int = 64 << 20
    max_inflight_bytes: int = 128 << 20
    max_batch_rows: int = 100_000
    max_key_bytes: int = 65_535
    request_timeout_s: float = 60.0
    idle_timeout_s: float = 0.0

    def parser_limits(self) -> ParserLimits:
        """Of a client that may use the database."""
        return ParserLimits(ARGUMENTS_MAX, self.max_value_bytes, self.max_command_bytes)
