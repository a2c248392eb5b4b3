"""Scans that resume after an interrupted response."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import httpx
import msgpack

from shale.client.answers import reading, row_in
from shale.client.errors import problem_error, unreachable
from shale.client.retry import ClientRetryPolicy
from shale.errors import UnavailableError
from shale.types import Row

MSGPACK = "application/msgpack"
_BUFFER_MAX_BYTES = 1 << 32

Open = Callable[[Mapping[str, object]], AbstractAsyncContextManager[httpx.Response]]
Pause = Callable[[float], Awaitable[None]]


class RemoteScan:
    """One scan.  After an interruption it resumes after the last row, in the same state or not at all.

    Args:
        open_: sends a request with these fields and returns its streamed response.
        fields: the fields of the first request.
        retry_policy: limits the attempts at one position.
        pause: sleeps between attempts.
        url: the URL for error messages.
    """

    def __init__(
        self, open_: Open, fields: dict[str, object], retry_policy: ClientRetryPolicy, pause: Pause, url: str
    ) -> None:
        self._open = open_
        self._fields = fields
        self._retry_policy = retry_policy
        self._pause = pause
        self._url = url
        self._count = 0

    async def rows(self) -> AsyncGenerator[Row, None]:
        """Yield the rows.

        Raises:
            SnapshotExpired: the stream was interrupted, and its state is gone; scan a snapshot instead.
            UnavailableError: all attempts at one position were interrupted.
        """
        failures = 0
        while True:
            seen = self._count
            failure: UnavailableError
            try:
                async with aclosing(self._one_response()) as rows:
                    async for row in rows:
                        yield row
            except httpx.RequestError as error:
                failure = unreachable(self._url, error)
            except _InterruptedError:
                failure = UnavailableError(f"{self._url}: the stream was interrupted")
            else:
                return
            failures = 1 if self._count > seen else failures + 1
            if failures >= self._retry_policy.attempts:
                raise failure
            await self._pause(self._retry_policy.pause_s(failures))

    async def _one_response(self) -> AsyncGenerator[Row, None]:
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=_BUFFER_MAX_BYTES)
        async with self._open(self._fields) as response:
            with reading(self._url):
                resume = response.headers["x-shale-resume"]
            self._fields = {**self._fields, "resume": resume, "same_state": True}
            async for chunk in response.aiter_raw():
                with reading(self._url):
                    unpacker.feed(chunk)
                    items = [item if isinstance(item, dict) else row_in(item) for item in unpacker]
                for item in items:
                    if isinstance(item, dict):
                        with reading(self._url):
                            _check_ending(item)
                        return
                    self._advance(item)
                    yield item
        raise _InterruptedError

    def _advance(self, row: Row) -> None:
        self._count += 1
        self._fields["after"] = row.key
        limit = self._fields.get("limit")
        if isinstance(limit, int):
            self._fields["limit"] = limit - 1


class _InterruptedError(Exception):
    """The stream stopped before its ending."""


def _check_ending(ending: dict[str, Any]) -> None:
    problem = ending.get("error")
    if problem is not None:
        if not isinstance(problem, dict):
            raise TypeError("the error of an ending is not an object")
        raise problem_error(int(problem.get("status", 0)), problem)
