"""Idempotent writes: a write that a client retries is committed once.

A client names a write (``Idempotency-Key``).  While the key is remembered, a retry of the same write gets the first
response.  The keys are in the memory of this process, and their number is limited: after a restart, a retry commits the
same rows once more.
"""

import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import field
from http import HTTPStatus
from itertools import islice

import anyio

from shale.api.messages import Request
from shale.core.lazy_dataclass import dataclass
from shale.engine.write.write_handle import WriteHandle
from shale.service.http.problems import Problem, bad_request

HEADER = "Idempotency-Key"
NAME_MAX = 128
_MEANING = (b"x-shale-ttl-ms", b"x-shale-expire-at", b"content-type")
"""Headers that change the meaning of the body."""


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """A committed write and its number of rows.  Without a handle it only compared rows, at ``seq``."""

    handle: WriteHandle | None
    rows: int
    seq: int


@dataclass(slots=True, eq=False)
class _Known:
    """The state of one key.  After ``settled``, ``accepted`` is the result; ``None`` if the write failed."""

    checksum: tuple[int, int]
    settled: anyio.Event = field(default_factory=anyio.Event)
    accepted: CommittedWrite | None = None


class IdempotencyCache:
    """Remembers the latest ``keys_max`` writes with an idempotency key.

    Args:
        keys_max: how many keys to remember.
        time_limit: limits a wait, which it names in the ``Problem`` that it raises at the timeout.
    """

    def __init__(self, keys_max: int, time_limit: Callable[[str], AbstractContextManager[None]]) -> None:
        self._keys_max = keys_max
        self._time_limit = time_limit
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def once(
        self, name: str, call: Request, body: bytes | bytearray, commit: Callable[[], Awaitable[CommittedWrite]]
    ) -> CommittedWrite:
        """Commit the write, or wait for the result of the earlier write with this key.

        Raises:
            Problem: the key belongs to another write (422), or the earlier write takes too long (503).  Errors of
                ``commit`` pass through, and the key is free again.
        """
        checksum = _checksum(call, body)
        while (known := self._same(name, checksum)) is not None:
            if known.accepted is not None:
                return known.accepted
            # One time limit for all attempts of other requests: each attempt alone may take as long as a write.
            with self._time_limit("wait for the earlier write with this key"):
                while (known := self._same(name, checksum)) is not None and known.accepted is None:
                    await known.settled.wait()
        known = self._known[name] = _Known(checksum)
        try:
            known.accepted = accepted = await commit()
        finally:
            if known.accepted is None:
                del self._known[name]
            known.settled.set()
        self._forget_oldest()
        return accepted

    def _same(self, name: str, checksum: tuple[int, int]) -> _Known | None:
        known = self._known.get(name)
        if known is not None and known.checksum != checksum:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{HEADER}: {name!r} belongs to another write")
        return known

    def _forget_oldest(self) -> None:
        excess = len(self._known) - self._keys_max
        if excess > 0:  # a write that is under way keeps its key, which others may wait for
            settled = (name for name, known in self._known.items() if known.settled.is_set())
            for name in list(islice(settled, excess)):
                del self._known[name]


def idempotency_key(call: Request) -> str | None:
    """Return the ``Idempotency-Key`` of a write; ``None`` if it has none.

    Raises:
        Problem: the key is not 1 to 128 printable ASCII characters (400).
    """
    name = call.header(b"idempotency-key")
    if name is None:
        return None
    if not 0 < len(name) <= NAME_MAX or not name.isascii() or not name.isprintable():
        raise bad_request(f"{HEADER}: must be 1 to {NAME_MAX} printable ASCII characters")
    return name


def _checksum(call: Request, body: bytes | bytearray) -> tuple[int, int]:
    head = "\n".join([call.method, *(call.header(name) or "" for name in _MEANING)])
    return len(body), zlib.crc32(body, zlib.crc32(call.path, zlib.crc32(head.encode())))
