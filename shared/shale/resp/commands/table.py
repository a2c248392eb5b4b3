"""The table of all commands."""

from collections.abc import Mapping

from shale.resp.commands import client, connection, scanning, server, strings, transactions
from shale.resp.commands.command import Command


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

BY_WIRE_NAME: dict[bytes, Command] = {
    spelling: command for name, command in COMMANDS.items() for spelling in (name.encode(), name.upper().encode())
}
"""By what clients send, in the two spellings that they nearly always use; others are put into capitals first."""
