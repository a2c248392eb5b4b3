"""Writes that a client sends again because it does not know whether they arrived: each is committed once.

A client names a write (``Idempotency-Key``).  While the name is remembered, the same write under it gets the answer of
the first one.  Names live in the memory of this process, a bounded number of them: after a restart a write that is
repeated is one more commit of the same rows.
"""

import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio

from shale.api.call import Call
from shale.engine.write_handle import WriteHandle
from shale.service.problems import Problem, bad_request

HEADER = "Idempotency-Key"
NAME_MAX = 128
_MEANING = (b"x-shale-ttl-ms", b"x-shale-expire-at", b"content-type")
"""Headers without which the body does not say what is written."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A write that was committed: its handle (none: it only compared, at ``seq``), and how many rows it has."""

    handle: WriteHandle | None
    rows: int
    seq: int


@dataclass(slots=True, eq=False)
class _Known:
    """``accepted`` is known once ``settled`` is set, unless the write was refused."""

    checksum: tuple[int, int]
    settled: anyio.Event = field(default_factory=anyio.Event)
    accepted: Accepted | None = None


class Repeats:
    """The newest ``names_max`` named writes.

    Args:
        names_max: how many are remembered.
        in_time: ends a wait that takes too long, and is told for what; raises a ``Problem`` then.
    """

    def __init__(self, names_max: int, in_time: Callable[[str], AbstractContextManager[None]]) -> None:
        self._names_max = names_max
        self._in_time = in_time
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def once(
        self, name: str, call: Call, body: bytes | bytearray, commit: Callable[[], Awaitable[Accepted]]
    ) -> Accepted:
        """Commit the write, or wait for what became of the one of this name.

        Raises:
            Problem: the name belongs to another write (422), its write takes too long (503), or what ``commit`` raises;
                then the name is free again.
        """
        checksum = _checksum(call, body)
        while (known := self._same(name, checksum)) is not None:
            if known.accepted is not None:
                return known.accepted
            # One limit for all attempts of others: each of them may take as long as a write may.
            with self._in_time("learn what became of the write of this name"):
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
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{HEADER}: {name!r} was the name of another write")
        return known

    def _forget_oldest(self) -> None:
        while len(self._known) > self._names_max:
            oldest = next(iter(self._known))
            if not self._known[oldest].settled.is_set():
                return
            del self._known[oldest]


def write_name(call: Call) -> str | None:
    """What the client calls its write; ``None``: it has no name.

    Raises:
        Problem: not 1 to 128 printable ASCII characters (400).
    """
    name = call.header(b"idempotency-key")
    if name is None:
        return None
    if not 0 < len(name) <= NAME_MAX or not name.isascii() or not name.isprintable():
        raise bad_request(f"{HEADER}: not 1 to {NAME_MAX} printable ASCII characters")
    return name


def _checksum(call: Call, body: bytes | bytearray) -> tuple[int, int]:
    said = "\n".join([call.method, *(call.header(name) or "" for name in _MEANING)])
    return len(body), zlib.crc32(body, zlib.crc32(call.path, zlib.crc32(said.encode())))
