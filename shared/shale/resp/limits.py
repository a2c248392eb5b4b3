"""How much a client may ask of the parser."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Bounds on one command.

    Args:
        arguments: the most arguments, the name included.
        argument_bytes: the longest argument.
        command_bytes: all arguments of one command together, with some bytes for each (``shale.resp.parser``).
    """

    arguments: int
    argument_bytes: int
    command_bytes: int


BEFORE_AUTH = ParserLimits(10, 16 * 1024, 32 * 1024)
"""Whoever has not said the password yet needs no more than this to say it."""

ARGUMENTS_MAX = 1 << 20
"""The most arguments of one command, as in Redis."""
