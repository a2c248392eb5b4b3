"""EVAL, EVALSHA and SCRIPT, for the scripts of lock libraries only; FUNCTION, which has no functions."""

from collections.abc import Awaitable, Callable

from shale.engine.read.reads import Reads
from shale.resp.arguments.numbers import whole_number
from shale.resp.command import Command
from shale.resp.commands.lock_actions import ACTIONS, LockCall
from shale.resp.commands.rows import require_key_count
from shale.resp.composed import Writes
from shale.resp.errors import RespError, no_permission, unknown_subcommand, wrong_arity
from shale.resp.protocol.encoder import EMPTY_ARRAY, OK, array, bulk, integer
from shale.resp.scripts.lock_scripts import LockScript
from shale.resp.session import RespSession
from shale.service.access import Role

_NO_LUA = (
    "ERR this script cannot run: there is no Lua, only the scripts with which libraries take, extend and release locks "
    "are recognized; use WATCH and MULTI instead"
)
_NO_FUNCTIONS = "ERR there are no functions, because there is no Lua"


async def _eval(session: RespSession, args: list[bytes]) -> bytes:
    found = session.backend.scripts.add(args[1])
    if found is None:
        raise RespError(_NO_LUA)
    return await _run(session, found[1], args)


async def _evalsha(session: RespSession, args: list[bytes]) -> bytes:
    script = session.backend.scripts.find(args[1])
    if script is None:
        raise RespError("NOSCRIPT No matching script. Please use EVAL.")
    return await _run(session, script, args)


async def _run(session: RespSession, script: LockScript, args: list[bytes]) -> bytes:
    count = whole_number(args[2])
    if count < 0:
        raise RespError("ERR Number of keys can't be negative")
    if count > len(args) - 3:
        raise RespError("ERR Number of keys can't be greater than number of args")
    keys, rest = require_key_count(session, args[3 : 3 + count]), args[3 + count :]
    if len(keys) < script.keys or len(rest) < script.args:
        raise RespError(f"ERR the script needs {script.keys} keys and {script.args} arguments")
    action = ACTIONS[script.action]
    return await session.writes.atomically(_bound(session, script, keys, rest, action))


def _bound(
    session: RespSession,
    script: LockScript,
    keys: list[bytes],
    args: list[bytes],
    action: Callable[[LockCall], Awaitable[bytes]],
) -> Callable[[Reads, Writes], Awaitable[bytes]]:
    def run(reads: Reads, writes: Writes) -> Awaitable[bytes]:
        return action(LockCall(session, script, keys, args, reads, writes))

    return run


async def _script(session: RespSession, args: list[bytes]) -> bytes:
    scripts = session.backend.scripts
    match args[1].upper():
        case b"LOAD" if len(args) == 3:
            _require_writing(session, "script|load")  # one script more may drop that of another client
            found = scripts.add(args[2])
            if found is None:
                raise RespError(_NO_LUA)
            return bulk(found[0])
        case b"EXISTS" if len(args) > 2:
            return array([integer(scripts.find(digest) is not None) for digest in args[2:]])
        case b"FLUSH":
            _require_writing(session, "script|flush")
            scripts.clear()
            return OK
        case b"KILL":
            raise RespError("NOTBUSY No scripts in execution right now.")
        case b"LOAD" | b"EXISTS" as word:
            raise RespError(wrong_arity(f"script|{word.decode().lower()}"))
        case _:
            raise unknown_subcommand("script", args[1])


def _require_writing(session: RespSession, name: str) -> None:
    """Check the role of the client for a part of a command.

    Raises:
        RespError: it may only read.
    """
    if session.access.role is not None and session.access.role < Role.WRITE:
        raise RespError(no_permission(session.access.user, name))


async def _function(session: RespSession, args: list[bytes]) -> bytes:  # noqa: ARG001 - the signature of a handler
    match args[1].upper():
        case b"FLUSH":
            return OK
        case b"LIST":
            return EMPTY_ARRAY
        case _:
            raise RespError(_NO_FUNCTIONS)


_FLAGS = ("write", "noscript", "stale", "movablekeys")

COMMANDS = (
    Command(name="eval", arity=-3, handler=_eval, group="scripting", summary="Run the script of a lock library.",
            flags=_FLAGS),
    Command(name="evalsha", arity=-3, handler=_evalsha, group="scripting",
            summary="Run the script of a lock library by its hash.", flags=_FLAGS),
    Command(name="script", arity=-2, handler=_script, group="scripting",
            summary="Load scripts of lock libraries, and ask for them.", flags=("noscript",)),
    Command(name="function", arity=-2, handler=_function, group="scripting",
            summary="For clients that empty a server: there are no functions.", flags=("noscript",)),
)  # fmt: skip
