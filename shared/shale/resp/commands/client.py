"""CLIENT: information about this connection."""

from shale.resp.command import Command
from shale.resp.errors import SYNTAX, RespError, unknown_subcommand, wrong_arity
from shale.resp.protocol.encoder import OK, bulk, integer
from shale.resp.session import RespSession

NAME_BYTES_MAX = 256

_ARGUMENTS = {
    b"ID": (2, 2),
    b"GETNAME": (2, 2),
    b"SETNAME": (3, 3),
    b"SETINFO": (4, 4),
    b"INFO": (2, 2),
    b"LIST": (2, 1000),
    b"NO-EVICT": (3, 3),
    b"NO-TOUCH": (3, 3),
}


def checked_name(name: bytes) -> bytes:
    """Check a client name, which must fit into a line of CLIENT LIST.

    Raises:
        RespError: the name is too long or has special characters.
    """
    if len(name) > NAME_BYTES_MAX or not all(33 <= byte <= 126 for byte in name):
        raise RespError("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


async def _client(session: RespSession, args: list[bytes]) -> bytes:
    word = args[1].upper()
    if word not in _ARGUMENTS:
        raise unknown_subcommand("client", args[1])
    least, most = _ARGUMENTS[word]
    if not least <= len(args) <= most:
        raise RespError(wrong_arity(f"client|{word.decode().lower()}"))
    match word:
        case b"ID":
            return integer(session.id)
        case b"GETNAME":
            return bulk(session.name) if session.name else session.encoding.null
        case b"SETNAME":
            session.name = checked_name(args[2])
        case b"SETINFO":
            _set_info(session, args[2].upper(), checked_name(args[3]))
        case b"INFO" | b"LIST":
            return session.encoding.text(_line(session))
        case _:
            if args[2].upper() not in (b"ON", b"OFF"):
                raise RespError(SYNTAX)
    return OK


def _set_info(session: RespSession, field: bytes, value: bytes) -> None:
    if field == b"LIB-NAME":
        session.lib_name = value
    elif field == b"LIB-VER":
        session.lib_version = value
    else:
        raise RespError(f"ERR Unrecognized option '{field.decode(errors='replace')}'")


def _line(session: RespSession) -> bytes:
    age_s = session.backend.env.clock.monotonic_s() - session.created_s
    return b"id=%d addr=%b name=%b age=%d db=0 multi=%d watch=%d user=default lib-name=%b lib-ver=%b resp=%d\n" % (
        session.id,
        session.access.address.encode(),
        session.name,
        int(age_s),
        -1 if session.queued.commands is None else len(session.queued.commands),
        len(session.queued.watched),
        session.lib_name,
        session.lib_version,
        session.encoding.version,
    )


COMMANDS = (
    Command(name="client", arity=-2, handler=_client, group="connection", summary="Get or set connection info.",
            flags=("noscript", "loading", "stale")),
)  # fmt: skip
