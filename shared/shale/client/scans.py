"""The rows of a scan, over as many answers as it takes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import httpx
import msgpack

from shale.client.errors import problem_error, unreachable
from shale.client.patience import Patience
from shale.errors import UnavailableError
from shale.types import Row

MSGPACK = "application/msgpack"
_BUFFER_MAX_BYTES = 1 << 32

Open = Callable[[Mapping[str, object]], AbstractAsyncContextManager[httpx.Response]]
Pause = Callable[[float], Awaitable[None]]


class RemoteScan:
    """One scan.  When it is cut, it goes on behind the last row that arrived, in the same state or not at all.

    Args:
        open_: sends a request with these fields and gives its streamed answer.
        fields: of the first request.
        patience: how often one place is tried.
        pause: waits.
        url: for errors.
    """

    def __init__(self, open_: Open, fields: dict[str, object], patience: Patience, pause: Pause, url: str) -> None:
        self._open = open_
        self._fields = fields
        self._patience = patience
        self._pause = pause
        self._url = url
        self._count = 0

    async def rows(self) -> AsyncGenerator[Row, None]:
        """The rows.

        Raises:
            StateGone: it was cut and cannot go on in the state in which it began; scan under a snapshot.
            UnavailableError: it was cut again and again.
        """
        failures = 0
        while True:
            seen = self._count
            failure: UnavailableError
            try:
                async with aclosing(self._one_answer()) as rows:
                    async for row in rows:
                        yield row
            except httpx.TransportError as error:
                failure = unreachable(self._url, error)
            except _CutError:
                failure = UnavailableError(f"{self._url}: the scan was cut")
            else:
                return
            failures = 1 if self._count > seen else failures + 1
            if failures >= self._patience.attempts:
                raise failure
            await self._pause(self._patience.pause_s(failures))

    async def _one_answer(self) -> AsyncGenerator[Row, None]:
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=_BUFFER_MAX_BYTES)
        async with self._open(self._fields) as response:
            self._fields = {**self._fields, "resume": response.headers["x-shale-resume"], "same_state": True}
            async for chunk in response.aiter_raw():
                unpacker.feed(chunk)
                for item in unpacker:
                    if type(item) is dict:
                        _check_ending(item)
                        return
                    row = Row(*item)
                    self._note(row)
                    yield row
        raise _CutError

    def _note(self, row: Row) -> None:
        self._count += 1
        self._fields["after"] = row.key
        limit = self._fields.get("limit")
        if isinstance(limit, int):
            self._fields["limit"] = limit - 1


class _CutError(Exception):
    """The stream ended without an ending."""


def _check_ending(ending: dict[str, Any]) -> None:
    problem = ending.get("error")
    if problem is not None:
        raise problem_error(int(problem.get("status", 0)), problem)
