"""Ends reads whose clients have gone, so that they do not take the places of other requests while they wait."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.requests import ClientDisconnect

from shale.api.messages import Request
from shale.service.http.connection import is_closed

POLL_S = 0.5


async def answer_if_connected(handler: Callable[[Request], Awaitable[Any]], call: Request) -> Any:
    """Await the answer of a handler as long as the connection of its request is open.

    Args:
        handler: reads only: it may be cancelled anywhere.
        call: the request.

    Raises:
        ClientDisconnect: the client has gone.
    """
    answer: Any = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_closed, call, tasks.cancel_scope)
        try:
            answer = await handler(call)
        except Exception as error:  # noqa: BLE001 - raised below: a task group would put it into a group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if answer is None:
        raise ClientDisconnect
    return answer


async def _cancel_when_closed(call: Request, running: anyio.CancelScope) -> None:
    while not is_closed(call.scope):  # noqa: ASYNC110 - the server tells only those that receive, and the handler does
        await anyio.sleep(POLL_S)
    running.cancel()
