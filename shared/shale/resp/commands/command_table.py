"""The table of all commands."""

from collections.abc import Mapping
from dataclasses import replace

from shale.resp.command import Command
from shale.resp.commands import (
    client,
    config,
    connection,
    counters,
    expiry,
    keys,
    keyspace,
    ranges,
    scan,
    scripts,
    server,
    strings,
    transactions,
)
from shale.resp.errors import READ_ONLY, RespError
from shale.resp.session import RespCommand, RespSession


def _commands() -> Mapping[str, RespCommand]:
    return COMMANDS


_CATALOGUE = Command(
    name="command",
    arity=-1,
    handler=server.CommandIntrospection(_commands).handle,
    group="server",
    summary="List and describe commands.",
    flags=("loading", "stale"),
)

_GROUPS = (
    connection, client, strings, counters, ranges, expiry, keys, keyspace, scan, transactions, scripts, server, config,
)  # fmt: skip

COMMANDS: Mapping[str, RespCommand] = {
    command.name: command for command in (*(each for group in _GROUPS for each in group.COMMANDS), _CATALOGUE)
}
"""By name in lower case."""


def _by_request_name(commands: Mapping[str, RespCommand]) -> dict[bytes, RespCommand]:
    """Index commands by their names in lower and upper case; other spellings are converted first."""
    return {
        spelling: command for name, command in commands.items() for spelling in (name.encode(), name.upper().encode())
    }


async def _refuse(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    """Reject a write on a reader; within MULTI this aborts the transaction."""
    session.queued.is_aborted = session.queued.commands is not None
    raise RespError(READ_ONLY)


def _for_readers(command: RespCommand) -> RespCommand:
    """Replace commands that a reader rejects: writes, and WAITAOF, which would wrongly confirm durability."""
    if "write" in command.flags or command.name == "waitaof":
        return replace(command, handler=_refuse, is_immediate=True)
    return command


WRITER_COMMANDS = _by_request_name(COMMANDS)
"""The commands of a writer."""

READER_COMMANDS = _by_request_name({name: _for_readers(command) for name, command in COMMANDS.items()})
"""The commands of a reader."""
