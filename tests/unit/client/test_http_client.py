"""A server that is killed while the connection is made is one that is away, on uvloop, too."""

import anyio
import httpx
import pytest

from shale.client import Client
from shale.errors import UnavailableError


def asked(message: str) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise AttributeError(message)

    async def ask() -> None:
        async with Client("http://writer", attempts=1, transport=httpx.MockTransport(fail)) as client:
            await client.get(b"a")

    anyio.run(ask)


def test_a_connection_that_is_lost_while_it_is_made() -> None:
    with pytest.raises(UnavailableError, match="the connection was lost while it was made"):
        asked("'NoneType' object has no attribute 'getpeername'")


def test_another_mistake_is_not_hidden() -> None:
    with pytest.raises(AttributeError, match="a mistake of ours"):
        asked("a mistake of ours")
