"""A probe answers whether the writer has proved itself; nothing else comes out of it."""

from collections.abc import Callable

import anyio
import httpx
import pytest

from shale.types import Epoch
from shale.types.writer_sign import WriterIdentity, WriterPresence, WriterStatus
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
