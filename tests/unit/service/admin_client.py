"""An HTTP client of an admin app in the same process, and the problem documents that it answers with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from shale.service.admin import AdminApp


@asynccontextmanager
async def admin_client(app: AdminApp) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls the app without a socket."""
    transport = httpx.ASGITransport(app=app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client


def problem(answer: httpx.Response, status: int) -> Any:
    """Return the problem document of an answer, which must have this status."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    return answer.json()
