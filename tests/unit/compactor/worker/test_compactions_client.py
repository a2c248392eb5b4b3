"""A worker's access to the compactions file: each write is a heartbeat, and lost responses are recognized."""

from typing import Any

import pytest

from shale.types import EVERYTHING, CompactionContext, CompactionStatus, Seq, Subcompaction, Ulid
from shale_compactor.worker import claims
from shale_compactor.worker.compactions_client import CompactionsClient
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import compactions, entry, manifest, spec, sst, tree, ulid

pytestmark = pytest.mark.anyio
S = CompactionStatus
WHAT = spec(runs=(1,), to=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def ctx(*outputs: Any) -> CompactionContext:
    return CompactionContext(
        subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=outputs),), retention_min_seq=Seq(9)
    )


class Client:
    """A client with its callbacks recorded."""

    def __init__(self, harness: Harness) -> None:
        self.progress: dict[Ulid, CompactionContext | None] = {}
        self.seen: list[Any] = []
        self.stamped: list[int] = []
        self.client = CompactionsClient(
            harness.compactions,
            "me",
            harness.env,
            progress=lambda: dict(self.progress),
            on_seen=self.seen.append,
            on_stamped=self.stamped.append,
        )


async def stored(*entries: Any) -> tuple[Harness, Client]:
    harness = await Harness(manifest(tree(runs=(1,)))).create()
    await harness.compactions.create_new(compactions(*entries))
    found = Client(harness)
    await found.client.refresh()
    return harness, found


async def test_without_a_file_there_is_nothing_to_claim() -> None:
    harness = await Harness().create()
    found = Client(harness)
    assert await found.client.refresh() is None
    assert not found.client.is_open
    assert await found.client.release_all() == []


async def test_a_claim_is_the_first_heartbeat() -> None:
    harness, found = await stored(entry(1, WHAT, S.SCHEDULED), entry(2, WHAT, S.SCHEDULED))
    claimed = await found.client.claim(lambda _value, _got: {ulid(1)})
    assert [each.id for each in claimed] == [ulid(1)]
    assert found.stamped == [harness.clock.now_ms()]
    assert found.client.last_heartbeat_s == harness.clock.monotonic_s()
    value = await harness.stored()
    assert claims.owns(value.get(ulid(1)), "me")
    assert not claims.owns(value.get(ulid(2)), "me")


async def test_a_heartbeat_without_jobs_makes_no_request() -> None:
    harness, found = await stored(entry(1, WHAT, S.SCHEDULED))
    before = (await harness.compactions.read_latest()).id
    await found.client.heartbeat()
    assert (await harness.compactions.read_latest()).id == before
    assert found.stamped == []


async def test_a_heartbeat_publishes_progress_once() -> None:
    harness, found = await stored(entry(1, WHAT, S.SCHEDULED))
    await found.client.claim(lambda _value, _got: {ulid(1)})
    found.progress[ulid(1)] = ctx(sst(5))
    assert found.client.has_news
    harness.clock.advance(3)
    await found.client.heartbeat()
    assert not found.client.has_news
    mine = (await harness.stored()).get(ulid(1))
    assert mine is not None
    assert mine.worker is not None
    assert (mine.ctx, mine.worker.last_heartbeat_ms) == (ctx(sst(5)), harness.clock.now_ms())


async def test_each_version_is_seen_before_it_is_changed() -> None:
    harness, found = await stored(entry(1, WHAT, S.SCHEDULED))
    await harness.edit(entry(3, WHAT))
    found.seen.clear()
    await found.client.claim(lambda _value, _got: {ulid(1)})
    assert any(value.get(ulid(3)) is not None for value in found.seen)
    assert found.client.is_contended


async def test_everything_owned_is_released_with_its_progress() -> None:
    harness, found = await stored(entry(1, WHAT, S.SCHEDULED), entry(2, WHAT, S.SCHEDULED))
    await found.client.claim(lambda _value, _got: {ulid(1), ulid(2)})
    found.progress[ulid(2)] = ctx(sst(5))
    assert await found.client.release_all() == [ulid(1), ulid(2)]
    first, second = (await harness.stored()).entries
    assert (first.status, first.worker, first.ctx) == (S.SCHEDULED, None, None)
    assert (second.status, second.worker, second.ctx) == (S.SCHEDULED, None, ctx(sst(5)))
