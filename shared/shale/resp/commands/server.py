"""About the server: INFO, COMMAND, WAITAOF."""

from collections.abc import Callable, Iterable, Mapping

import anyio

from shale.resp.backend import Backend
from shale.resp.commands.command import Command
from shale.resp.encoder import array, bulk, integer, simple, texts
from shale.resp.failures import SYNTAX, RespError, unknown_subcommand
from shale.resp.glob import matcher
from shale.resp.numbers import whole_number
from shale.resp.session import Session
from shale.service.build import version

REDIS_VERSION = "7.4.0"
"""The Redis whose commands these are: some clients look here for what they may use."""

NAMES_MAX = 1024
"""One name of a few bytes is answered by hundreds."""


def _info_sections(session: Session) -> dict[bytes, dict[str, object]]:
    backend = session.backend
    uptime_s = int(backend.env.clock.monotonic_s() - backend.started_s)
    memory, persistence, replication = _of_database(backend)
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


def _of_database(backend: Backend) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """What INFO tells of the database: in memory, of what is stored, and who writes it."""
    writer, reader = backend.writer, backend.reader
    if reader is not None:
        lag_s = max(0, backend.env.clock.now_ms() - reader.last_poll_ms) // 1000
        persistence: dict[str, object] = {"shale_last_seq": reader.visible_seq, "shale_manifest_id": reader.manifest_id}
        return {}, persistence, {"role": "slave", "slave_read_only": 1, "shale_lag_seconds": lag_s}
    assert writer is not None
    persistence = {
        "shale_durability": backend.options.durability,
        "shale_last_seq": writer.last_seq,
        "shale_durable_seq": writer.durable_seq,
        "shale_manifest_id": writer.manifest_id,
    }
    replication = {"role": "master", "connected_slaves": 0, "shale_writer_epoch": writer.writer_epoch}
    return {"shale_unflushed_bytes": writer.unflushed_bytes}, persistence, replication


async def _info(session: Session, args: list[bytes]) -> bytes:
    wanted = {word.lower() for word in args[1:]}
    if wanted & {b"all", b"default", b"everything"}:
        wanted.clear()
    parts = [
        b"# %b\r\n" % name + b"".join(f"{field}:{value}\r\n".encode() for field, value in fields.items())
        for name, fields in _info_sections(session).items()
        if not wanted or name.lower() in wanted
    ]
    return session.wire.text(b"\r\n".join(parts))


async def _waitaof(session: Session, args: list[bytes]) -> bytes:
    """Wait until what this client has written is durable; of replicas there are none, so none is waited for."""
    local = whole_number(args[1], least=0, most=1, problem="ERR value is out of range, value must between 0 and 1")
    whole_number(args[2], least=0)
    timeout_ms = whole_number(args[3], least=0, problem="ERR timeout is negative, or not an integer")
    handle = session.last_write
    if handle is None or session.writer.durable_seq >= handle.seq:
        return array([integer(1), integer(0)])
    if local and session.transaction is None:
        longest_s = session.backend.options.request_timeout_s
        with anyio.move_on_after(min(timeout_ms / 1000 or longest_s, longest_s)):
            await handle.durable()
    return array([integer(int(session.writer.durable_seq >= handle.seq)), integer(0)])


class Catalogue:
    """COMMAND, which tells of the whole table, itself included."""

    def __init__(self, table: Callable[[], Mapping[str, Command]]) -> None:
        self._table = table

    async def handle(self, session: Session, args: list[bytes]) -> bytes:
        """Answer COMMAND."""
        table = self._table()
        if len(args) == 1:
            return array([_described(session, command) for command in table.values()])
        word, names = args[1].upper(), args[2:]
        if len(names) > NAMES_MAX:
            raise RespError(f"ERR at most {NAMES_MAX} names of commands are answered at once")
        match word:
            case b"COUNT":
                return integer(len(table))
            case b"INFO":
                return array([_described(session, command) for command in _chosen(table, names)])
            case b"DOCS":
                known = [command for command in _chosen(table, names) if command is not None]
                return session.wire.map([(bulk(each.name.encode()), _documented(session, each)) for each in known])
            case b"LIST":
                return texts(_listed(table, names))
            case _:
                raise unknown_subcommand("command", args[1])


def _chosen(table: Mapping[str, Command], names: list[bytes]) -> Iterable[Command | None]:
    if not names:
        return table.values()
    return [table.get(name.decode(errors="replace").lower()) for name in names]


def _listed(table: Mapping[str, Command], words: list[bytes]) -> list[str]:
    if not words:
        return list(table)
    if len(words) != 3 or words[0].upper() != b"FILTERBY":
        raise RespError(SYNTAX)
    if words[1].upper() != b"PATTERN":
        return []
    is_match = matcher(words[2].lower())
    return [name for name in table if is_match(name.encode())]


def _described(session: Session, command: Command | None) -> bytes:
    if command is None:
        return session.wire.null_array
    first, last, step = command.keys
    return array([
        bulk(command.name.encode()),
        integer(command.arity),
        session.wire.set([simple(flag) for flag in command.flags]),
        integer(first),
        integer(last),
        integer(step),
        session.wire.set([simple(f"@{command.group}")]),
        array([]),
        array([]),
        array([]),
    ])  # fmt: skip


def _documented(session: Session, command: Command) -> bytes:
    fields = {"summary": command.summary, "since": "1.0.0", "group": command.group}
    return session.wire.map([(bulk(name.encode()), bulk(text.encode())) for name, text in fields.items()])


COMMANDS = (
    Command(name="info", arity=-1, handler=_info, group="server", summary="What the server has to tell.",
            flags=("loading", "stale")),
    Command(name="waitaof", arity=4, handler=_waitaof, group="generic",
            summary="Wait until what was written here is durable.", flags=("blocking",)),
)  # fmt: skip
