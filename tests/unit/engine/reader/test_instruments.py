"""The metrics of a reader that alerts compare with each other."""

import pytest

import shale
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_poll_interval_is_that_of_a_reader_that_polls() -> None:
    store = MemoryStore()
    db = await shale.Db.open("orders", store=store, compactor=False, gc=False)
    checkpoint = await db.checkpoint()
    await db.close()
    every_3_s, pinned = shale.ReaderOptions(manifest_poll_interval_s=3), shale.ReaderOptions(checkpoint=checkpoint.id)
    for options, wanted in ((every_3_s, 3), (pinned, 0)):
        metrics = Metrics(db="orders")
        reader = await shale.DbReader.open("orders", store=store, metrics=metrics, options=options)
        await reader.close()
        found = metrics.registry.get_sample_value("slatedb_reader_poll_interval_seconds", {"db": "orders"})
        assert found == wanted
