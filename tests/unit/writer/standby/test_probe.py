"""A probe answers whether the writer has proved itself; nothing else comes out of it."""

from collections.abc import Callable
from dataclasses import replace

import anyio
import httpx
import pytest

from shale.core.token_hash import token_hash
from shale.service.config.settings import load_settings
from shale.types import Epoch
from shale.types.writer_sign import WriterIdentity, WriterPresence, WriterStatus
from shale_writer.settings import WriterSettings
from shale_writer.standby.probe import HttpProbe

IDENTITY = WriterIdentity(holder="h", host="a", since_s=1, endpoint="http://127.0.0.1:8080")
ACTIVE = WriterStatus(presence=WriterPresence.SIGNED, epoch=Epoch(3), identity=IDENTITY)


def asked(answer: Callable[[httpx.Request], httpx.Response]) -> bool:
    async def ask() -> bool:
        async with HttpProbe(lambda: None, proof_max_age_s=5.0, transport=httpx.MockTransport(answer)) as probe:
            return await probe(ACTIVE)

    return anyio.run(ask)


@pytest.mark.parametrize(
    ("fields", "is_proof"),
    [
        ({"epoch": 3, "holder": "h", "proved_s": 1.0}, True),
        ({"epoch": 3, "holder": "h", "proved_s": 6.0}, False),
        ({"epoch": 2, "holder": "h", "proved_s": 1.0}, False),
        ({"epoch": 3, "holder": "other", "proved_s": 1.0}, False),
        ([], False),
    ],
)
def test_an_answer_is_a_proof_of_the_writer_and_its_epoch(fields: object, is_proof: bool) -> None:
    assert asked(lambda _: httpx.Response(200, json=fields)) is is_proof


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        # On uvloop, of a writer that is killed while the connection is made.
        AttributeError("'NoneType' object has no attribute 'getpeername'"),
    ],
)
def test_no_failure_ends_a_standby(error: Exception) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    assert not asked(fail)


@pytest.mark.parametrize(
    ("endpoint", "has_tls", "is_sent"),
    [
        ("http://10.0.0.7:8080", False, True),
        ("http://10.0.0.7:8080", True, False),
        ("HTTP://attacker.example", True, False),
        ("http://127.0.0.1:8080", True, True),
        ("http://[::1]:8080", True, True),
        ("https://10.0.0.7:8080", True, True),
    ],
)
def test_the_token_of_a_deployment_with_tls_is_not_sent_in_clear(endpoint: str, has_tls: bool, is_sent: bool) -> None:
    sent = list[str | None]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("Authorization"))
        return httpx.Response(401)

    async def ask() -> None:
        active = replace(ACTIVE, identity=replace(IDENTITY, endpoint=endpoint))
        transport = httpx.MockTransport(answer)
        async with HttpProbe(lambda: "r", proof_max_age_s=5.0, has_tls=has_tls, transport=transport) as probe:
            assert not await probe(active)

    anyio.run(ask)
    assert sent == ["Bearer r" if is_sent else None]


@pytest.mark.parametrize(
    ("tokens", "token"),
    [
        ({}, None),
        ({"tokens.write": "w", "tokens.admin": "a", "http.bearer_token": "h"}, None),
        ({"tokens.write": "w", "tokens.read": f"{token_hash('r1')} r2 r3"}, "r2"),
        ({"tokens.read": "r", "standby.token": "s"}, "s"),
    ],
)
def test_a_standby_sends_only_a_token_that_reads(
    tokens: dict[str, str], token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in tokens.items():
        monkeypatch.setenv(f"SHALE_{name.replace('.', '__').upper()}", value)
    assert load_settings(WriterSettings, ["--url", "memory:///db"]).settings.standby_token() == token
