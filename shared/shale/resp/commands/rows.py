"""What commands that read before they write have in common."""

from shale.core.ttl import NEVER
from shale.resp.composed import Writes
from shale.resp.errors import TOO_LONG, RespError
from shale.resp.session import RespSession
from shale.types import Row


def put_keeping_expiry(writes: Writes, key: bytes, value: bytes, old: Row | None) -> None:
    """Write a value that expires when the old row would have; without one, by the default of the database."""
    if old is None:
        writes.put(key, value)
    else:
        put_until(writes, key, value, old.expire_ts)


def put_until(writes: Writes, key: bytes, value: bytes, expire_ts: int | None) -> None:
    """Write a value that expires at a time, or never, whatever the default of the database is."""
    writes.put(key, value, ttl=NEVER if expire_ts is None else None, expire_at=expire_ts)


def require_length(session: RespSession, length: int) -> None:
    """Check the length of a value that a command composes.

    Raises:
        RespError: a client could not have sent it.
    """
    if length > session.backend.options.max_value_bytes:
        raise RespError(TOO_LONG)


def require_key_count(session: RespSession, keys: list[bytes]) -> list[bytes]:
    """Return the keys of one command.

    Raises:
        RespError: there are too many.
    """
    most = session.backend.options.max_batch_rows
    if len(keys) > most:
        raise RespError(f"ERR {len(keys)} keys in one command; the limit is {most}")
    return keys
