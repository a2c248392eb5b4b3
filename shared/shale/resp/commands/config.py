"""CONFIG and TIME: what clients and tools ask a server for."""

from collections.abc import Mapping

from shale.resp.arguments.glob import matcher
from shale.resp.command import Command
from shale.resp.commands.scan import checked_patterns
from shale.resp.errors import RespError, shown, unknown_subcommand, wrong_arity
from shale.resp.protocol.encoder import OK, array, bulk
from shale.resp.session import RespSession

_OF_OTHER_TYPES = frozenset(
    (
        "hash-max-listpack-entries",
        "hash-max-listpack-value",
        "list-max-listpack-size",
        "set-max-intset-entries",
        "set-max-listpack-entries",
        "zset-max-listpack-entries",
        "zset-max-listpack-value",
    )
)
"""Parameters of types that do not exist here: setting one changes nothing, so it is accepted."""


def _parameters(session: RespSession) -> Mapping[str, str]:
    options = session.backend.options
    return {
        "appendfsync": "always" if options.durability == "durable" else "everysec",
        "appendonly": "yes",
        "databases": "1",
        "maxclients": str(options.max_connections),
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": str(options.max_value_bytes),
        "save": "",
        "timeout": f"{options.idle_timeout_s:g}",
    }


async def _config(session: RespSession, args: list[bytes]) -> bytes:
    match args[1].upper():
        case b"GET" if len(args) > 2:
            return _get(session, args[2:])
        case b"SET" if len(args) > 2 and len(args) % 2 == 0:
            return _set(session, args[2::2])
        case b"GET" | b"SET" as word:
            raise RespError(wrong_arity(f"config|{word.decode().lower()}"))
        case _:
            raise unknown_subcommand("config", args[1])


def _get(session: RespSession, patterns: list[bytes]) -> bytes:
    matchers = [matcher(pattern.lower()) for pattern in checked_patterns(patterns)]
    return session.encoding.map(
        [
            (bulk(name.encode()), bulk(value.encode()))
            for name, value in _parameters(session).items()
            if any(is_match(name.encode()) for is_match in matchers)
        ]
    )


def _set(session: RespSession, names: list[bytes]) -> bytes:
    for name in names:
        word = shown(name).lower()
        if word in _parameters(session):
            raise RespError(f"ERR CONFIG SET failed - can't set '{word}': it follows the settings of the process")
        if word not in _OF_OTHER_TYPES:
            raise RespError(f"ERR Unknown option or number of arguments for CONFIG SET - '{word}'")
    return OK


async def _time(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    seconds, millis = divmod(session.backend.env.clock.now_ms(), 1000)
    return array([bulk(b"%d" % seconds), bulk(b"%d" % (millis * 1000))])


COMMANDS = (
    Command(name="config", arity=-2, handler=_config, group="server", summary="Get parameters of the server.",
            flags=("noscript", "loading", "stale")),
    Command(name="time", arity=1, handler=_time, group="server", summary="Get the time of the server.",
            flags=("loading", "stale", "fast")),
)  # fmt: skip
