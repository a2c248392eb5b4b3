"""What runs in place of the scripts of lock libraries (``shale.resp.scripts.lock_scripts``)."""

from collections.abc import Awaitable, Callable, Mapping

from shale.core.lazy_dataclass import dataclass
from shale.engine.read.reads import Reads
from shale.resp.arguments.numbers import expiry_ms, positive_expiry_ms, whole_number
from shale.resp.commands.rows import put_until
from shale.resp.composed import Writes
from shale.resp.errors import OUT_OF_MEMORY, RespError
from shale.resp.protocol.encoder import OK, array, bulk, integer
from shale.resp.scripts.lock_scripts import LockScript
from shale.resp.session import RespSession
from shale.types import Row


@dataclass(slots=True)
class LockCall:
    """One call of a script.

    Args:
        session: the session of the client.
        script: what it does.
        keys: the keys; enough for the script.
        args: the arguments; enough for the script.  The first is the token, if there is one.
        reads: where to read.
        writes: where to write.
    """

    session: RespSession
    script: LockScript
    keys: list[bytes]
    args: list[bytes]
    reads: Reads
    writes: Writes

    @property
    def now_ms(self) -> int:
        """The time of the database's clock."""
        return self.session.backend.env.clock.now_ms()

    async def row(self, key: bytes) -> Row | None:
        """Return the row of a lock that has not expired."""
        return await self.session.rows.live_row(self.reads, key)

    def expiry(self, place: int = 1) -> int:
        """Return when a lock expires that is written now, with the lifetime in the argument at that place."""
        return positive_expiry_ms(self.args[place], 1, self.now_ms, "set")

    def put(self, key: bytes, expire_at: int | None = None) -> None:
        """Write the token; by default the second argument says the lifetime.

        Raises:
            RespError: memory is full.
        """
        account = self.session.backend.memory.account
        if account.is_full:
            account.refuse()
            raise RespError(OUT_OF_MEMORY)
        self.writes.put(key, self.args[0], expire_at=self.expiry() if expire_at is None else expire_at)

    def let_expire(self, key: bytes, row: Row, expire_at: int) -> None:
        """Change when a lock expires; in the past means now."""
        if expire_at <= self.now_ms:
            self.writes.delete(key)
        else:
            put_until(self.writes, key, row.value, expire_at)


async def _owned(call: LockCall) -> Row | bytes:
    """Return the row of the caller's lock, or the answer if it is not the caller's."""
    row = await call.row(call.keys[0])
    if row is None:
        return integer(call.script.absent)
    return row if row.value == call.args[0] else integer(call.script.foreign)


async def _release(call: LockCall) -> bytes:
    row = await _owned(call)
    if isinstance(row, bytes):
        return row
    call.writes.delete(call.keys[0])
    return integer(1)


def _extend(command: str, unit_ms: int) -> "Action":
    async def extend(call: LockCall) -> bytes:
        row = await _owned(call)
        if isinstance(row, bytes):
            return row
        call.let_expire(call.keys[0], row, expiry_ms(call.args[1], unit_ms, call.now_ms, command))
        return integer(1)

    return extend


async def _prolong(call: LockCall) -> bytes:
    """Add to the time that is left; a third argument other than 0 replaces it."""
    row = await _owned(call)
    if isinstance(row, bytes):
        return row
    if row.expire_ts is None:
        return integer(0)
    is_added = len(call.args) < 3 or call.script.args < 3 or call.args[2] == b"0"
    base_ms = row.expire_ts if is_added else call.now_ms
    call.let_expire(call.keys[0], row, expiry_ms(call.args[1], 1, base_ms, "pexpire"))
    return integer(1)


async def _time_left_ms(call: LockCall) -> bytes:
    row = await _owned(call)
    if isinstance(row, bytes):
        return row
    return _left_ms(call, row)


async def _take(call: LockCall) -> bytes:
    expire_at = call.expiry()  # `set` refuses a lifetime before it looks at the key
    if await call.row(call.keys[0]) is not None:
        return call.session.encoding.null
    call.put(call.keys[0], expire_at)
    return OK


async def _take_or_extend(call: LockCall) -> bytes:
    row = await _owned(call)
    if not isinstance(row, bytes):
        call.let_expire(call.keys[0], row, expiry_ms(call.args[1], 1, call.now_ms, "pexpire"))
        return integer(1)
    is_taken = await call.row(call.keys[0]) is not None
    if is_taken and call.script.foreign:
        return row
    expire_at = call.expiry()  # the other script calls `set` with NX, which refuses a lifetime first
    if is_taken:
        return row
    call.put(call.keys[0], expire_at)
    return integer(1)


async def _reenter(call: LockCall) -> bytes:
    row = await call.row(call.keys[0])
    if row is None:
        call.put(call.keys[0])
    elif row.value == call.args[0]:
        call.let_expire(call.keys[0], row, expiry_ms(call.args[1], 1, call.now_ms, "pexpire"))
    else:
        return call.session.encoding.null
    return integer(1)


async def _take_or_renew(call: LockCall) -> bytes:
    """Renew the caller's lock, or take a free one if the third argument is ``yes``."""
    row = await call.row(call.keys[0])
    if call.args[2] != b"yes" if row is None else row.value != call.args[0]:
        return call.session.encoding.null
    call.put(call.keys[0])
    return OK


async def _take_by_prefix(call: LockCall) -> bytes:
    """Take a free lock, or replace one whose token has the same beginning, as long as the second argument says."""
    expire_at = call.expiry(2)
    length = whole_number(call.args[1], least=1)
    row = await call.row(call.keys[0])
    if row is not None and row.value[:length] != call.args[0][:length]:
        return call.session.encoding.null
    call.put(call.keys[0], expire_at)
    return OK


async def _describe(call: LockCall) -> bytes:
    row = await call.session.rows.row_for_reply(call.reads, call.keys[0])
    if row is None:
        return array([call.session.encoding.null, integer(-2)])
    return array([bulk(row.value), _left_ms(call, row)])


def _left_ms(call: LockCall, row: Row) -> bytes:
    return integer(-1 if row.expire_ts is None else max(row.expire_ts - call.now_ms, 0))


async def _take_all(call: LockCall) -> bytes:
    if any([await call.row(key) is not None for key in call.keys]):
        return integer(0)
    return _put_all(call)


async def _extend_all(call: LockCall) -> bytes:
    for key in call.keys:
        row = await call.row(key)
        if row is None or row.value != call.args[0]:
            return integer(0)
    return _put_all(call)


def _put_all(call: LockCall) -> bytes:
    for key in call.keys:
        call.put(key)
    return integer(len(call.keys))


async def _release_all(call: LockCall) -> bytes:
    count = 0
    for key in dict.fromkeys(call.keys):
        row = await call.row(key)
        if row is not None and row.value == call.args[0]:
            call.writes.delete(key)
            count += 1
    return integer(count)


Action = Callable[[LockCall], Awaitable[bytes]]

ACTIONS: Mapping[str, Action] = {
    "release": _release,
    "extend_ms": _extend("pexpire", 1),
    "extend_s": _extend("expire", 1000),
    "prolong": _prolong,
    "time_left_ms": _time_left_ms,
    "take": _take,
    "take_or_extend": _take_or_extend,
    "reenter": _reenter,
    "take_or_renew": _take_or_renew,
    "take_by_prefix": _take_by_prefix,
    "describe": _describe,
    "take_all": _take_all,
    "extend_all": _extend_all,
    "release_all": _release_all,
}
