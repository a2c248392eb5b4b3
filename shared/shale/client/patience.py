"""Which requests are sent again, and when.

Reads are, and writes are because each has a name under which it happens once (docs/http.md 2), as long as the process
that took it lives.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
import httpx

from shale.client.errors import error_of, unreachable
from shale.env import Env

if TYPE_CHECKING:
    from shale.errors import ShaleError

_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_FIRST_PAUSE_S = 0.1
_PAUSE_MAX_S = 10.0

Send = Callable[[], Awaitable[httpx.Response]]


@dataclass(frozen=True, slots=True)
class Patience:
    """``attempts`` of one request at most, ``total_s`` at most for all of them and the pauses between."""

    attempts: int
    total_s: float
    env: Env

    async def answer(self, url: str, send: Send) -> httpx.Response:
        """A good answer, of some attempt.

        Raises:
            ShaleError: the answer is a problem, of the last attempt if it was one that may pass.
            UnavailableError: none came.
        """
        end_s = self.env.clock.monotonic_s() + self.total_s
        for attempt in range(1, self.attempts + 1):
            wish_s = 0.0
            try:
                response = await send()
            except httpx.TransportError as failure:
                error: ShaleError = unreachable(url, failure)
            else:
                if response.is_success:
                    return response
                await response.aread()
                await response.aclose()
                error = error_of(response.status_code, response.content)
                if response.status_code not in _AGAIN:
                    raise error
                wish_s = _retry_after_s(response)
            pause_s = self.pause_s(attempt, wish_s)
            if attempt == self.attempts or self.env.clock.monotonic_s() + pause_s > end_s:
                raise error
            await anyio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def pause_s(self, attempt: int, wish_s: float = 0.0) -> float:
        """How long to wait after an attempt: at least what the server wishes, and not as long as everybody else."""
        backoff_s: float = min(_PAUSE_MAX_S, _FIRST_PAUSE_S * 2 ** (attempt - 1))
        return wish_s + backoff_s * self.env.rng.uniform(0.5, 1.0)


def _retry_after_s(response: httpx.Response) -> float:
    text: str = response.headers.get("retry-after", "0")
    return min(_PAUSE_MAX_S, float(text)) if text.isascii() and text.isdigit() else 0.0
