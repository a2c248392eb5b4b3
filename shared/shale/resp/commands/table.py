"""The table of all commands."""

from collections.abc import Mapping
from dataclasses import replace

from shale.resp.commands import client, connection, scanning, server, strings, transactions
from shale.resp.commands.command import Command
from shale.resp.failures import READ_ONLY, RespError
from shale.resp.session import Session


def _commands() -> Mapping[str, Command]:
    return COMMANDS


_CATALOGUE = Command(
    name="command",
    arity=-1,
    handler=server.Catalogue(_commands).handle,
    group="server",
    summary="Which commands there are.",
    flags=("loading", "stale"),
)

COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        *connection.COMMANDS,
        *client.COMMANDS,
        *strings.COMMANDS,
        *scanning.COMMANDS,
        *transactions.COMMANDS,
        *server.COMMANDS,
        _CATALOGUE,
    )
}
"""By name in lower case."""


def _by_wire_name(commands: Mapping[str, Command]) -> dict[bytes, Command]:
    """By what clients send, in the two spellings that they nearly always use; others are put into capitals first."""
    return {
        spelling: command for name, command in commands.items() for spelling in (name.encode(), name.upper().encode())
    }


async def _refuse(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    """What a reader answers to commands that write; within MULTI nothing of the transaction is run then."""
    session.is_broken = session.queue is not None
    raise RespError(READ_ONLY)


def _for_readers(command: Command) -> Command:
    """Waiting for one's own writes means nothing where none are taken, and would seem to say that they are safe."""
    if "write" in command.flags or command.name == "waitaof":
        return replace(command, handler=_refuse, is_immediate=True)
    return command


BY_WIRE_NAME = _by_wire_name(COMMANDS)
"""What clients of a writer can say."""

OF_READERS = _by_wire_name({name: _for_readers(command) for name, command in COMMANDS.items()})
"""What clients of a reader can say."""
