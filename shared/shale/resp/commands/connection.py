"""Who is there: PING, ECHO, HELLO, AUTH, SELECT, QUIT."""

from shale.resp.commands.client import checked_name
from shale.resp.commands.command import Command
from shale.resp.encoder import OK, PONG, RESP2, RESP3, array, bulk, integer
from shale.resp.failures import SYNTAX, WRONG_PASSWORD, RespError, wrong_arity
from shale.resp.numbers import whole_number
from shale.resp.session import Session
from shale.service.build import version

_WIRES = {2: RESP2, 3: RESP3}
_NO_PROTOCOL = "NOPROTO unsupported protocol version"
_NOTHING_TO_SAY = (
    "ERR Client sent AUTH, but no password is set: AUTH called without one configured for the default user"
)
_HELLO_LOCKED = "NOAUTH HELLO must be called by an authenticated client, or with AUTH <user> <password>"
_USER = b"default"


async def _ping(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    if len(args) > 2:
        raise RespError(wrong_arity("ping"))
    return PONG if len(args) == 1 else bulk(args[1])


async def _echo(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    return bulk(args[1])


async def _quit(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    session.is_closing = True
    return OK


async def _select(session: Session, args: list[bytes]) -> bytes:  # noqa: ARG001
    if whole_number(args[1]) != 0:
        raise RespError("ERR DB index is out of range")
    return OK


async def _auth(session: Session, args: list[bytes]) -> bytes:
    if len(args) > 3:
        raise RespError(SYNTAX)
    _authenticate(session, args[1] if len(args) == 3 else _USER, args[-1])
    return OK


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    if not session.backend.has_password:
        raise RespError(_NOTHING_TO_SAY)
    if user != _USER or not session.backend.is_password(password):
        raise RespError(WRONG_PASSWORD)
    session.unlock()


async def _hello(session: Session, args: list[bytes]) -> bytes:
    wire, name = session.wire, None
    if len(args) > 1:
        number = whole_number(args[1], problem="ERR Protocol version is not an integer or out of range")
        if number not in _WIRES:
            raise RespError(_NO_PROTOCOL)
        wire = _WIRES[number]
    rest = iter(args[2:])
    for word in rest:
        match word.upper():
            case b"AUTH":
                user, password = next(rest, None), next(rest, None)
                if user is None or password is None:
                    raise RespError(SYNTAX)
                _authenticate(session, user, password)
            case b"SETNAME":
                name = checked_name(next(rest, b" "))
            case _:
                raise RespError(SYNTAX)
    if session.is_locked:
        raise RespError(_HELLO_LOCKED)
    session.wire = wire
    session.name = session.name if name is None else name
    fields = {
        "server": bulk(b"shale"),
        "version": bulk(version().encode()),
        "proto": integer(wire.version),
        "id": integer(session.id),
        "mode": bulk(b"standalone"),
        "role": bulk(b"master" if session.backend.reader is None else b"replica"),
        "modules": array([]),
    }
    return wire.map([(bulk(field.encode()), value) for field, value in fields.items()])


COMMANDS = (
    Command(name="ping", arity=-1, handler=_ping, group="connection", summary="Whether somebody is there.",
            flags=("fast",)),
    Command(name="echo", arity=2, handler=_echo, group="connection", summary="The same again.", flags=("fast",)),
    Command(name="hello", arity=-1, handler=_hello, group="connection", summary="Choose the protocol, and come in.",
            flags=("noscript", "no_auth", "fast"), is_open=True, is_queueable=False),
    Command(name="auth", arity=-2, handler=_auth, group="connection", summary="Come in.",
            flags=("noscript", "no_auth", "fast"), is_open=True),
    Command(name="select", arity=2, handler=_select, group="connection", summary="Only database 0 is there.",
            flags=("fast",)),
    Command(name="quit", arity=-1, handler=_quit, group="connection", summary="End the connection.",
            flags=("noscript", "no_auth", "fast"), is_open=True, is_immediate=True),
)  # fmt: skip
