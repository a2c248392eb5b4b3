"""Batches that a client sends again because it does not know whether they arrived: each is committed once.

A client names a batch (``Idempotency-Key``).  While the name is remembered, the same batch under it gets the answer of
the first one.  Names live in the memory of this process, a bounded number of them: after a restart a batch that is
repeated is one more commit of the same rows.
"""

import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio
from starlette.requests import Request

from shale.engine.write_handle import WriteHandle
from shale.service.problems import Problem, bad_request

HEADER = "Idempotency-Key"
NAME_MAX = 128


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch that was committed: its handle, and how many rows it has."""

    handle: WriteHandle
    rows: int


@dataclass(slots=True, eq=False)
class _Known:
    """``accepted`` is known once ``settled`` is set, unless the batch was refused."""

    checksum: tuple[int, int]
    settled: anyio.Event = field(default_factory=anyio.Event)
    accepted: Accepted | None = None


class Repeats:
    """The newest ``names_max`` named batches."""

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def once(self, name: str, body: bytearray, commit: Callable[[], Awaitable[Accepted]]) -> Accepted:
        """Commit the batch, or wait for what became of the one of this name.

        Raises:
            Problem: the name belongs to another batch (422), or what ``commit`` raises; then the name is free again.
        """
        checksum = (len(body), zlib.crc32(body))
        while (known := self._known.get(name)) is not None:
            if known.checksum != checksum:
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{HEADER}: {name!r} was the name of another batch")
            await known.settled.wait()
            if known.accepted is not None:
                return known.accepted
        known = self._known[name] = _Known(checksum)
        try:
            known.accepted = accepted = await commit()
        finally:
            if known.accepted is None:
                del self._known[name]
            known.settled.set()
        self._forget_oldest()
        return accepted

    def _forget_oldest(self) -> None:
        while len(self._known) > self._names_max:
            oldest = next(iter(self._known))
            if not self._known[oldest].settled.is_set():
                return
            del self._known[oldest]


def batch_name(request: Request) -> str | None:
    """What the client calls its batch; ``None``: it has no name.

    Raises:
        Problem: not 1 to 128 printable ASCII characters (400).
    """
    name = request.headers.get(HEADER)
    if name is None:
        return None
    if not 0 < len(name) <= NAME_MAX or not name.isascii() or not name.isprintable():
        raise bad_request(f"{HEADER}: not 1 to {NAME_MAX} printable ASCII characters")
    return name
