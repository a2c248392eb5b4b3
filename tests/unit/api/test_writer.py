"""The route that tells which writer answers."""

import pytest

from shale.types.writer_sign import writer_status
from tests.unit.api.harness import open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_writer_tells_what_its_manifest_tells() -> None:
    async with open_port() as port:
        identity = writer_status(port.db.status.manifest, now_ms=0).identity
        assert identity is not None
        fields = (await port.client.get("/v1/writer")).json()
        assert 0 <= fields.pop("proved_s") < 600
        assert fields == {
            "database": "memory:///db",
            "epoch": 1,
            "holder": identity.holder,
            "host": identity.host,
            "since_s": identity.since_s,
        }
        assert (await port.client.get("/v1/writer?x=1")).status_code == 400
        assert (await port.client.post("/v1/writer")).status_code == 405
