"""The start-up check distinguishes a safe store from one that violates its contract."""

import random
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from shale.env import Env, InlineCpu, SystemClock
from shale.errors import AccessDenied, ConflictError, StoreUnsafe, UnavailableError
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import OVERWRITE, Create, GetResult, ObjectStore, PutMode, Update
from shale.store.preflight import check_store, require_safe_store
from shale.store.retry import RetryingStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultPlan, FaultyStore, Rule

pytestmark = pytest.mark.anyio
ENV = Env(SystemClock(), random.Random(3), InlineCpu())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Deaf(MemoryStore):
    """A store that ignores the conditions of one kind, as s3rver does."""

    def __init__(self, ignores: type) -> None:
        super().__init__()
        self.ignores = ignores

    async def put(self, key, data, *, mode=OVERWRITE, attributes=None):  # type: ignore[no-untyped-def]
        mode = OVERWRITE if isinstance(mode, self.ignores) else mode
        return await super().put(key, data, mode=mode, attributes=attributes)


class Racy(MemoryStore):
    """A store that checks a condition first and writes later, as many servers did."""

    async def put(self, key, data, *, mode=OVERWRITE, attributes=None):  # type: ignore[no-untyped-def]
        found = await self.head(key)
        if isinstance(mode, Create) and found is None:
            await anyio.lowlevel.checkpoint()
            mode = OVERWRITE
        if isinstance(mode, Update) and found is not None and found.etag == mode.etag:
            await anyio.lowlevel.checkpoint()
            mode = OVERWRITE
        return await super().put(key, data, mode=mode, attributes=attributes)


class Repeating(MemoryStore):
    """A store that gets each put once more before the object is read, as a late duplicate of the request."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[tuple[str, bytes, PutMode]] = []

    async def put(self, key, data, *, mode=OVERWRITE, attributes=None):  # type: ignore[no-untyped-def]
        self.puts.append((key, data, mode))
        return await super().put(key, data, mode=mode, attributes=attributes)

    async def get(self, key: str) -> GetResult | None:
        for repeated, data, mode in self.puts:
            with suppress(ConflictError):
                await super().put(repeated, data, mode=mode)
        return await super().get(key)


class Deleting(MemoryStore):
    """A store that counts the requests which delete several objects."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self.requests = 0

    async def delete_many(self, keys):  # type: ignore[no-untyped-def]
        self.requests += 1
        self.deleted += keys
        return await super().delete_many(keys)


@pytest.mark.parametrize("attributes", [True, False])
@pytest.mark.parametrize("full", [True, False])
async def test_a_safe_store_passes_and_is_left_clean(full: bool, attributes: bool) -> None:
    memory = MemoryStore(supports_attributes=attributes)
    results = await check_store(RetryingStore(memory, ENV), ENV, full=full, prefix="db")
    assert all(result.ok is not False for result in results), results
    assert [result.name for result in results if result.ok is None] == (["metadata"] if full and not attributes else [])
    assert len(results) == (12 if full else 4)
    assert await memory.list("") == []


async def test_all_scratch_keys_are_deleted_with_one_request() -> None:
    """A request for each would take longer on a slow store than there is time for it."""
    store = Deleting()
    await check_store(store, ENV, full=True, prefix="db")
    assert len(store.deleted) > 20
    assert store.requests == 1
    assert await store.list("") == []


async def test_late_duplicates_of_requests_are_not_taken_for_an_unsafe_store() -> None:
    await require_safe_store(Repeating(), ENV)


async def test_scratch_keys_avoid_the_namespaces() -> None:
    seen: set[str] = set()
    faulty = FaultyStore(MemoryStore(), random.Random(1))
    faulty.observe(lambda request: seen.add(request.key))
    await check_store(faulty, ENV, full=True, prefix="a/db")
    assert all(key.startswith("a/db/.shale-preflight/") for key in seen)


@pytest.mark.parametrize(
    ("store", "check"),
    [
        (Deaf(Create), "create-conflict"),
        (Deaf(Update), "update-stale"),
        (Racy(), "create-race"),
    ],
    ids=["ignores If-None-Match", "ignores If-Match", "checks before it writes"],
)
@pytest.mark.parametrize("wrapped", [True, False])
async def test_a_store_that_lies_is_refused(store: MemoryStore, check: str, wrapped: bool) -> None:
    tried: ObjectStore = RetryingStore(store, ENV) if wrapped else store
    with pytest.raises(StoreUnsafe) as caught:
        await require_safe_store(tried, ENV)
    message = str(caught.value)
    assert "memory:///" in message
    assert f"check {check}: expected " in message
    assert ", saw " in message
    assert await store.list("") == []


async def test_without_boundaries_updates_are_not_required() -> None:
    await require_safe_store(Deaf(Update), ENV, needs_update=False)


@pytest.mark.slow
async def test_an_outage_is_not_a_lie() -> None:
    faulty = FaultyStore(MemoryStore(), random.Random(1))
    faulty.add(Rule(fault=Fault.BEFORE, times=10_000))
    store = RetryingStore(faulty, ENV, RetryPolicy(first_delay_s=0.001))
    with pytest.raises(UnavailableError, match="injected"):
        await require_safe_store(store, ENV, deadline_s=0.2)
    faulty.freeze()
    with pytest.raises(UnavailableError, match="did not answer"):
        await require_safe_store(store, ENV, deadline_s=0.05)


async def test_refused_credentials_end_the_check_at_once() -> None:
    class Locked(MemoryStore):
        tries = 0

        async def put(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.tries += 1
            raise AccessDenied("403")

    locked = Locked()
    with pytest.raises(AccessDenied):
        await require_safe_store(RetryingStore(locked, ENV), ENV)
    assert locked.tries == 1


async def test_lost_answers_do_not_make_a_store_unsafe() -> None:
    faulty = FaultyStore(MemoryStore(), random.Random(5), FaultPlan(after=0.3, before=0.1))
    store = RetryingStore(faulty, ENV, RetryPolicy(first_delay_s=0.0))
    results = await check_store(store, ENV, full=False)
    assert all(result.ok is not False for result in results), results
