"""Bad tokens and URLs of clients, and servers that ask for a pause."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import anyio
import httpx
import pytest

from shale.client import Client
from shale.client.authorization import token_of_file
from shale.client.client import client_without_repeats
from shale.env import Env, InlineCpu
from shale.errors import InvalidRequestError, UnavailableError
from tests.clocks import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Answers(httpx.AsyncBaseTransport):
    """Answers with these statuses; a refusal asks for a pause of ``retry_after`` seconds.  ``0``: no answer."""

    def __init__(self, statuses: Sequence[int], retry_after: str) -> None:
        self._statuses = list(statuses)
        self._retry_after = retry_after
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        status = self._statuses.pop(0)
        if not status:
            raise httpx.ReadError("cut")
        return httpx.Response(status, headers={"Retry-After": self._retry_after}, content=b"{}")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> tuple[ManualClock, list[float]]:
    """Return a clock that moves with each pause, and the pauses."""
    clock, found = ManualClock(), list[float]()

    async def pause(seconds: float) -> None:
        found.append(seconds)
        clock.sleep(seconds)

    monkeypatch.setattr(anyio, "sleep", pause)
    return clock, found


async def status(transport: Answers, clock: ManualClock, *, repeat_unanswered: bool = True) -> int:
    env = Env(clock, Random(1), InlineCpu())
    make = Client if repeat_unanswered else client_without_repeats
    async with make("http://port", total_timeout="2m", transport=transport, env=env) as client:
        return (await client.send("POST", "/v1/admin/flush")).status_code


async def test_a_refused_request_is_sent_again_after_the_pause(pauses: tuple[ManualClock, list[float]]) -> None:
    clock, seen = pauses
    transport = Answers([429, 429, 204], "40")
    assert await status(transport, clock) == 204
    assert all(40 <= each < 41 for each in seen)
    assert len(seen) == 2


async def test_a_pause_that_is_longer_than_the_time_limit_is_an_error_at_once(
    pauses: tuple[ManualClock, list[float]],
) -> None:
    clock, seen = pauses
    transport = Answers([429, 204], "121")
    with pytest.raises(UnavailableError):
        await status(transport, clock)
    assert (transport.requests, seen) == (1, [])


@pytest.mark.parametrize(("statuses", "requests"), [([429, 200], 2), ([503, 200], 1), ([0, 200], 1)])
async def test_only_what_was_refused_is_repeated_on_demand(
    statuses: list[int], requests: int, pauses: tuple[ManualClock, list[float]]
) -> None:
    transport = Answers(statuses, "1")
    if requests == 2:
        assert await status(transport, pauses[0], repeat_unanswered=False) == 200
    else:
        with pytest.raises(UnavailableError):
            await status(transport, pauses[0], repeat_unanswered=False)
    assert transport.requests == requests


@pytest.mark.parametrize("token", ["planted two", "planted\n2", "planted-\u00e9", ""])
def test_a_token_that_no_header_can_hold_is_not_shown(token: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="printable ASCII") as raised:
        Client("http://port", token=token)
    assert "planted" not in str(raised.value)
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(InvalidRequestError, match=f"^{file}: the bearer token") as raised:
        token_of_file(file)
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(("content", "reason"), [(b"planted\xff", "UnicodeDecodeError"), (None, "FileNotFoundError")])
def test_a_file_without_text_is_named(content: bytes | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=f"{file}: cannot read a token: {reason}$"):
        token_of_file(file)


def test_the_token_of_a_file_has_no_blanks_around_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" abc\n")
    assert token_of_file(tmp_path / "token") == "abc"


async def test_messages_hold_no_password_of_the_url() -> None:
    async with Client("http://user:planted@127.0.0.1:1", attempts=1) as client:
        with pytest.raises(UnavailableError, match=r"^http://user:\*\*\*@127\.0\.0\.1:1: "):
            await client.send("GET", "/v1/writer")
    with pytest.raises(InvalidRequestError, match=r"^http://user:\*\*\*@host is not a URL"):
        Client("http://user:planted/x@host")
