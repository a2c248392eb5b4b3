"""Bounds the time in which a handle is opened, and says what it waited for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.errors import DeadlineExceeded
from shale.store.opening import FIRST_ANSWER_S, OPENING, OpeningRequests


@asynccontextmanager
async def opening(where: DatabaseLocation, stores: DatabaseStores) -> AsyncIterator[None]:
    """Open a handle in this context.

    Raises:
        AccessDenied: the store refuses the credentials or the permission; at once, and not retried.
        DeadlineExceeded: the store has not answered for 15 s, or ``open_timeout`` is over.
    """
    if where.open_timeout_s is None:
        yield
        return
    begun_s, limit_s = anyio.current_time(), where.open_timeout_s
    scope = anyio.CancelScope(deadline=begun_s + min(FIRST_ANSWER_S, limit_s))

    def extend() -> None:
        scope.deadline = begun_s + limit_s

    requests = OpeningRequests(extend)
    token = OPENING.set(requests)
    try:
        with scope:
            yield
    finally:
        requests.is_over = True
        OPENING.reset(token)
    if scope.cancelled_caught:
        raise DeadlineExceeded(_reason(stores, requests, anyio.current_time() - begun_s))


def _reason(stores: DatabaseStores, requests: OpeningRequests, waited_s: float) -> str:
    cause = requests.last_error
    last = "no request failed, none was answered" if cause is None else f"the last request failed with: {cause}"
    return (
        f"{stores.main.url} could not be opened within {waited_s:.0f} s ({last}); check the URL, the endpoint and the "
        "network, or raise open_timeout"
    )
