"""Connection commands: PING, ECHO, HELLO, AUTH, SELECT, QUIT."""

from shale.resp.arguments.numbers import whole_number
from shale.resp.client_access import DEFAULT_USER
from shale.resp.command import Command
from shale.resp.commands.client import checked_name
from shale.resp.errors import SYNTAX, WRONG_PASSWORD, RespError, wrong_arity
from shale.resp.protocol.encoder import OK, PONG, RESP2, RESP3, array, bulk, integer
from shale.resp.session import RespSession
from shale.service.access import Role
from shale.service.audit import fingerprint
from shale.service.build import version

_ENCODINGS = {2: RESP2, 3: RESP3}
_NO_PROTOCOL = "NOPROTO unsupported protocol version"
_AUTH_DISABLED = "ERR Client sent AUTH, but no password is set: AUTH called without one configured for the default user"
_HELLO_LOCKED = "NOAUTH HELLO must be called by an authenticated client, or with AUTH <user> <password>"
_ROLES = {DEFAULT_USER: Role.READ, **{role.label.encode(): role for role in Role}}
"""The users, and the role that a password must at least have for them."""


async def _ping(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    if len(args) > 2:
        raise RespError(wrong_arity("ping"))
    return PONG if len(args) == 1 else bulk(args[1])


async def _echo(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    return bulk(args[1])


async def _quit(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    session.is_closing = True
    return OK


async def _select(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001
    require_database(args[1])
    return OK


def require_database(number: bytes) -> None:
    """Check the number of a database.

    Raises:
        RespError: not an integer, or not 0.
    """
    if whole_number(number) != 0:
        raise RespError("ERR DB index is out of range")


async def _auth(session: RespSession, args: list[bytes]) -> bytes:
    if len(args) > 3:
        raise RespError(SYNTAX)
    _authenticate(session, args[1] if len(args) == 3 else DEFAULT_USER, args[-1])
    return OK


def _authenticate(session: RespSession, user: bytes, password: bytes) -> None:
    if not session.backend.has_password:
        raise RespError(_AUTH_DISABLED)
    found, wanted = session.backend.role_of(password), _ROLES.get(user)
    if found is None or wanted is None or wanted > found:
        if (pause_s := session.backend.failed(session.access.address.rpartition(":")[0])) is not None:
            session.is_closing = True
            raise RespError(f"TRYAGAIN too many wrong passwords from this address: try again after {pause_s} s")
        raise RespError(WRONG_PASSWORD)
    # A user that is the name of a role has only this role, even if the password allows more.
    role = found if user == DEFAULT_USER else wanted
    session.access.set_authenticated(user, role)
    session.access.fingerprint = fingerprint(password)
    if session.backend.quotas is not None:
        session.access.quota = session.backend.quotas.of(found, password)


async def _hello(session: RespSession, args: list[bytes]) -> bytes:
    encoding, name = session.encoding, None
    if len(args) > 1:
        number = whole_number(args[1], problem="ERR Protocol version is not an integer or out of range")
        if number not in _ENCODINGS:
            raise RespError(_NO_PROTOCOL)
        encoding = _ENCODINGS[number]
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
    if session.access.needs_auth:
        raise RespError(_HELLO_LOCKED)
    session.encoding = encoding
    session.name = session.name if name is None else name
    fields = {
        "server": bulk(b"shale"),
        "version": bulk(version().encode()),
        "proto": integer(encoding.version),
        "id": integer(session.id),
        "mode": bulk(b"standalone"),
        "role": bulk(b"master" if session.backend.reader is None else b"replica"),
        "modules": array([]),
    }
    return encoding.map([(bulk(field.encode()), value) for field, value in fields.items()])


COMMANDS = (
    Command(name="ping", arity=-1, handler=_ping, group="connection", summary="Check that the server responds.",
            flags=("fast",)),
    Command(name="echo", arity=2, handler=_echo, group="connection", summary="Return the argument.", flags=("fast",)),
    Command(name="hello", arity=-1, handler=_hello, group="connection", summary="Choose the protocol, authenticate.",
            flags=("noscript", "no_auth", "fast"), is_open=True, is_queueable=False),
    Command(name="auth", arity=-2, handler=_auth, group="connection", summary="Authenticate.",
            flags=("noscript", "no_auth", "fast"), is_open=True),
    Command(name="select", arity=2, handler=_select, group="connection", summary="Select a database; only 0 exists.",
            flags=("fast",)),
    Command(name="quit", arity=-1, handler=_quit, group="connection", summary="Close the connection.",
            flags=("noscript", "no_auth", "fast"), is_open=True, is_immediate=True),
)  # fmt: skip
