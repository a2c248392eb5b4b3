"""Retries of requests.

Reads are safe to retry, and so are writes: each has an idempotency key, which the server remembers as long as its
process lives (docs/reference/http.md 2).
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
import httpx

from shale.client.errors import error_of, unreachable
from shale.core.lazy_dataclass import dataclass
from shale.env import Env

if TYPE_CHECKING:
    from shale.errors import ShaleError

_RETRYABLE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_FIRST_PAUSE_S = 0.1
_BACKOFF_MAX_S = 10.0

Send = Callable[[], Awaitable[httpx.Response]]


@dataclass(frozen=True, slots=True)
class ClientRetryPolicy:
    """Limits the attempts of one request to ``attempts``, and all of them with their pauses to ``total_s`` seconds.

    ``repeat_unanswered``: whether to send a request again that got no answer or 503, so that it may have been executed.
    After 429 nothing was done.
    """

    attempts: int
    total_s: float
    env: Env
    repeat_unanswered: bool = True

    async def request(self, url: str, send: Send) -> httpx.Response:
        """Send a request until it succeeds.

        A pause that would end after the time limit is not begun: the error of the last attempt is raised at once.

        Raises:
            ShaleError: the server reports an error that is not retryable, or the last attempt failed.
            UnavailableError: the last attempt got no response.
        """
        end_s = self.env.clock.monotonic_s() + self.total_s
        for attempt in range(1, self.attempts + 1):
            requested_s, may_repeat = 0.0, self.repeat_unanswered
            try:
                response = await send()
                if not response.is_success:
                    await _read_all(response)
            except httpx.RequestError as failure:
                error: ShaleError = unreachable(url, failure)
            else:
                if response.is_success:
                    return response
                error = error_of(response.status_code, response.content)
                if response.status_code not in _RETRYABLE:
                    raise error
                requested_s = _retry_after_s(response)
                may_repeat |= response.status_code == HTTPStatus.TOO_MANY_REQUESTS
            pause_s = self.pause_s(attempt, requested_s)
            if not may_repeat or attempt == self.attempts or self.env.clock.monotonic_s() + pause_s > end_s:
                raise error
            await anyio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def pause_s(self, attempt: int, requested_s: float = 0.0) -> float:
        """Return the pause after an attempt: the server's ``Retry-After`` plus an exponential backoff with jitter."""
        backoff_s: float = min(_BACKOFF_MAX_S, _FIRST_PAUSE_S * 2 ** (attempt - 1))
        return requested_s + backoff_s * self.env.rng.uniform(0.5, 1.0)


async def _read_all(response: httpx.Response) -> None:
    try:
        await response.aread()
    finally:
        await response.aclose()


def _retry_after_s(response: httpx.Response) -> float:
    text: str = response.headers.get("retry-after", "0")
    return float(text) if text.isascii() and text.isdigit() else 0.0
