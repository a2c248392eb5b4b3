"""Server commands: INFO, COMMAND, WAITAOF."""

from collections.abc import Callable, Iterable, Mapping

import anyio

from shale.resp.arguments.glob import matcher
from shale.resp.arguments.numbers import whole_number
from shale.resp.backend import Backend
from shale.resp.command import Command
from shale.resp.commands.scan import checked_pattern
from shale.resp.errors import SYNTAX, RespError, unknown_subcommand
from shale.resp.protocol.encoder import array, bulk, integer, simple, texts
from shale.resp.session import RespCommand, RespSession
from shale.service.build import version

REDIS_VERSION = "7.4.0"
"""The Redis version that the commands follow; some clients choose their features by it."""

NAMES_MAX = 1024
"""Limit of names in one COMMAND; a name of a few bytes gets a reply of hundreds."""


def _info_sections(session: RespSession) -> dict[bytes, dict[str, object]]:
    backend = session.backend
    uptime_s = int(backend.env.clock.monotonic_s() - backend.started_s)
    memory, persistence, replication = _database_info(backend)
    return {
        b"Server": {
            "redis_version": REDIS_VERSION,
            "redis_mode": "standalone",
            "server_name": "shale",
            "shale_version": version(),
            "uptime_in_seconds": uptime_s,
            "uptime_in_days": uptime_s // 86_400,
        },
        b"Clients": {
            "connected_clients": backend.connections,
            "maxclients": backend.options.max_connections,
        },
        b"Memory": {**memory, "shale_inflight_bytes": backend.inflight_bytes, "maxmemory": 0},
        b"Persistence": {"loading": 0, "aof_enabled": 1, **persistence},
        b"Stats": {
            "total_connections_received": backend.connections_accepted,
            "rejected_connections": backend.connections_refused,
            "total_commands_processed": sum(backend.calls.values()),
            "total_error_replies": sum(backend.errors.values()),
            "total_net_input_bytes": backend.bytes_read,
            "total_net_output_bytes": backend.bytes_written,
        },
        b"Replication": replication,
        b"Keyspace": {},
    }


def _database_info(backend: Backend) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """Return the INFO fields of the database: memory, persistence and replication."""
    writer, reader = backend.writer, backend.reader
    if reader is not None:
        lag_s = max(0, backend.env.clock.now_ms() - reader.last_poll_ms) // 1000
        persistence: dict[str, object] = {"shale_last_seq": reader.visible_seq, "shale_manifest_id": reader.manifest_id}
        return {}, persistence, {"role": "slave", "slave_read_only": 1, "shale_lag_seconds": lag_s}
    assert writer is not None
    persistence = {
        "shale_durability": backend.options.durability,
        "shale_last_seq": writer.status.last_seq,
        "shale_durable_seq": writer.status.durable_seq,
        "shale_manifest_id": writer.status.manifest_id,
    }
    replication = {"role": "master", "connected_slaves": 0, "shale_writer_epoch": writer.status.writer_epoch}
    return {"shale_unflushed_bytes": writer.status.unflushed_bytes}, persistence, replication


async def _info(session: RespSession, args: list[bytes]) -> bytes:
    wanted = {word.lower() for word in args[1:]}
    if wanted & {b"all", b"default", b"everything"}:
        wanted.clear()
    parts = [
        b"# %b\r\n" % name + b"".join(f"{field}:{value}\r\n".encode() for field, value in fields.items())
        for name, fields in _info_sections(session).items()
        if not wanted or name.lower() in wanted
    ]
    return session.encoding.text(b"\r\n".join(parts))


async def _waitaof(session: RespSession, args: list[bytes]) -> bytes:
    """Wait until the writes of this client are durable; there are no replicas to wait for."""
    local = whole_number(args[1], least=0, most=1, problem="ERR value is out of range, value must between 0 and 1")
    whole_number(args[2], least=0)
    timeout_ms = whole_number(args[3], least=0, problem="ERR timeout is negative, or not an integer")
    handle = session.writes.last_write
    if handle is None or session.writes.writer.status.durable_seq >= handle.seq:
        return array([integer(1), integer(0)])
    if local and session.writes.transaction is None:
        longest_s = session.backend.options.request_timeout_s
        with anyio.move_on_after(min(timeout_ms / 1000 or longest_s, longest_s)):
            await handle.durable()
    return array([integer(int(session.writes.writer.status.durable_seq >= handle.seq)), integer(0)])


class CommandIntrospection:
    """COMMAND, which describes all commands, itself included."""

    def __init__(self, table: Callable[[], Mapping[str, RespCommand]]) -> None:
        self._table = table

    async def handle(self, session: RespSession, args: list[bytes]) -> bytes:
        """Execute COMMAND."""
        table = self._table()
        if len(args) == 1:
            return array([_described(session, command) for command in table.values()])
        word, names = args[1].upper(), args[2:]
        if len(names) > NAMES_MAX:
            raise RespError(f"ERR at most {NAMES_MAX} command names are allowed in one call")
        match word:
            case b"COUNT":
                return integer(len(table))
            case b"INFO":
                return array([_described(session, command) for command in _chosen(table, names)])
            case b"DOCS":
                known = [command for command in _chosen(table, names) if command is not None]
                return session.encoding.map([(bulk(each.name.encode()), _documented(session, each)) for each in known])
            case b"LIST":
                return texts(_listed(table, names))
            case _:
                raise unknown_subcommand("command", args[1])


def _chosen(table: Mapping[str, RespCommand], names: list[bytes]) -> Iterable[RespCommand | None]:
    if not names:
        return table.values()
    return [table.get(name.decode(errors="replace").lower()) for name in names]


def _listed(table: Mapping[str, RespCommand], words: list[bytes]) -> list[str]:
    if not words:
        return list(table)
    if len(words) != 3 or words[0].upper() != b"FILTERBY":
        raise RespError(SYNTAX)
    if words[1].upper() != b"PATTERN":
        return []
    is_match = matcher(checked_pattern(words[2].lower()))
    return [name for name in table if is_match(name.encode())]


def _described(session: RespSession, command: RespCommand | None) -> bytes:
    if command is None:
        return session.encoding.null_array
    first, last, step = command.keys
    return array([
        bulk(command.name.encode()),
        integer(command.arity),
        session.encoding.set([simple(flag) for flag in command.flags]),
        integer(first),
        integer(last),
        integer(step),
        session.encoding.set([simple(f"@{command.group}")]),
        array([]),
        array([]),
        array([]),
    ])  # fmt: skip


def _documented(session: RespSession, command: RespCommand) -> bytes:
    fields = {"summary": command.summary, "since": "1.0.0", "group": command.group}
    return session.encoding.map([(bulk(name.encode()), bulk(text.encode())) for name, text in fields.items()])


COMMANDS = (
    Command(name="info", arity=-1, handler=_info, group="server", summary="Get information about the server.",
            flags=("loading", "stale")),
    Command(name="waitaof", arity=4, handler=_waitaof, group="generic",
            summary="Wait until the writes of this connection are durable.", flags=("blocking",)),
)  # fmt: skip
