"""Retries, lost answers and conflicts, on a faulty store in virtual time."""

import random
import weakref
from array import array
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shale.core.bytes_like import BytesLike
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import AccessDenied, AlreadyExists, DeadlineExceeded, Precondition, UnavailableError
from shale.store import memory as memory_store
from shale.store import retry
from shale.store.memory import MemoryStore
from shale.store.opening import OPENING, OpeningRequests
from shale.store.options import RetryPolicy
from shale.store.port import CREATE, PUT_ID, GetResult, ObjectMeta, Update
from shale.store.retry import RetryingStore
from shale.telemetry.log import RateLimit
from shale.testing import faulty_store
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultPlan, FaultyStore, Rule, StoreRequest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record every pause between attempts, without waiting."""
    taken: list[float] = []

    async def sleep(delay_s: float) -> None:
        taken.append(delay_s)

    monkeypatch.setattr(retry.anyio, "sleep", sleep)
    return taken


def make(
    *, attributes: bool = True, policy: RetryPolicy | None = None, plan: FaultPlan | None = None
) -> tuple[MemoryStore, FaultyStore, RetryingStore, list[StoreRequest]]:
    memory = MemoryStore(supports_attributes=attributes)
    faulty = FaultyStore(memory, random.Random(1), plan or FaultPlan())
    requests: list[StoreRequest] = []
    faulty.observe(requests.append)
    env = Env(SystemClock(), random.Random(2), InlineCpu())
    return memory, faulty, RetryingStore(faulty, env, policy), requests


async def test_delays_double_up_to_a_second(pauses: list[float]) -> None:
    memory, faulty, store, _ = make()
    await memory.put("k", b"v")
    faulty.add(Rule(fault=Fault.BEFORE, op="get", times=7))
    got = await store.get("k")
    assert isinstance(got, GetResult)
    assert bytes(got.data) == b"v"
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


async def test_retries_max_ends_the_retries(pauses: list[float]) -> None:
    _, faulty, store, requests = make(policy=RetryPolicy(retries_max=2))
    faulty.add(Rule(fault=Fault.BEFORE, times=99))
    with pytest.raises(UnavailableError, match="3 times"):
        await store.list("m/")
    assert len(requests) == 3


async def test_a_timeout_ends_the_retries_with_the_last_failure() -> None:
    _, faulty, store, _ = make(policy=RetryPolicy(timeout_s=0.02, first_delay_s=0.001))
    faulty.add(Rule(fault=Fault.BEFORE, times=10**6))
    with pytest.raises(DeadlineExceeded, match=r"list failed for 0\.02 s, the last time with: .*; check the URL"):
        await store.list("m/")


async def test_a_timeout_ends_a_request_without_an_answer() -> None:
    class Silent(MemoryStore):
        async def head(self, key: str) -> ObjectMeta | None:
            await anyio.sleep_forever()

    store = RetryingStore(Silent(), Env.system(), RetryPolicy(timeout_s=0.01))
    with pytest.raises(DeadlineExceeded, match=r"head failed for 0\.01 s, no answer came"):
        await store.head("k")


async def test_a_create_that_a_silent_store_does_not_answer_is_not_looked_up() -> None:
    """The question whether it has succeeded would not be answered, either."""
    asked = []

    class Silent(MemoryStore):
        async def put(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("put")
            await anyio.sleep_forever()

        async def head(self, key: str) -> ObjectMeta | None:
            asked.append("head")
            await anyio.sleep_forever()

    store = RetryingStore(Silent(), Env.system(), RetryPolicy(timeout_s=0.01))
    with pytest.raises(DeadlineExceeded, match="put failed"):
        await store.put("k", b"v", mode=CREATE)
    assert asked == ["put"]


async def test_the_first_answer_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_ANSWER_S", 0.01)
    memory, faulty, store, _ = make(policy=RetryPolicy(timeout_s=60, first_delay_s=0.001))
    faulty.add(Rule(fault=Fault.BEFORE, op="head", times=10**6))
    with pytest.raises(DeadlineExceeded, match=r"failed for 0\.01 s"):
        await store.head("k")
    await memory.put("k", b"v")
    assert await store.get("k") is not None
    with anyio.move_on_after(0.05) as waited:
        await store.head("k")
    assert waited.cancelled_caught, "a store that has answered is given more time"


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.LATE])
async def test_a_lost_answer_of_a_create_is_a_success(fault: Fault, pauses: list[float]) -> None:
    memory, faulty, store, requests = make()
    faulty.add(Rule(fault=fault, op="put"))
    etag = await store.put("k", b"v", mode=CREATE)
    meta = await memory.head("k")
    assert meta is not None
    assert etag == meta.etag
    if fault is Fault.AFTER:
        assert [request.op for request in requests] == ["put", "put", "head"]


async def test_a_lost_answer_of_an_update_is_a_success(pauses: list[float]) -> None:
    memory, faulty, store, _ = make()
    first = await memory.put("k", b"1")
    assert first is not None
    faulty.add(Rule(fault=Fault.AFTER, op="put"))
    faulty.add(Rule(fault=Fault.BEFORE, op="head", times=2))
    etag = await store.put("k", b"2", mode=Update(first))
    meta = await memory.head("k")
    assert meta is not None
    assert etag == meta.etag != first


async def test_equal_bytes_of_another_writer_are_a_conflict(pauses: list[float]) -> None:
    memory, faulty, store, _ = make()
    await memory.put("k", b"v", attributes={PUT_ID: "someone"})
    faulty.add(Rule(fault=Fault.BEFORE, op="put"))
    with pytest.raises(AlreadyExists):
        await store.put("k", b"v", mode=CREATE)
    with pytest.raises(Precondition):
        await store.put("k", b"v", mode=Update("stale"))
    with pytest.raises(Precondition):
        await store.put("absent", b"v", mode=Update("stale"))


async def test_without_metadata_a_lost_answer_looks_like_a_conflict(pauses: list[float]) -> None:
    _, faulty, store, requests = make(attributes=False)
    faulty.add(Rule(fault=Fault.AFTER, op="put"))
    with pytest.raises(AlreadyExists):
        await store.put("k", b"v", mode=CREATE)
    assert [request.op for request in requests] == ["put", "put"]


async def test_each_logical_put_has_its_own_id(pauses: list[float]) -> None:
    memory, _, store, _ = make()
    await store.put("a", b"", mode=CREATE, attributes={"walid": "7"})
    await store.put("b", b"", mode=CREATE)
    first, second = await memory.head("a"), await memory.head("b")
    assert first is not None
    assert second is not None
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.attributes["walid"] == "7"
    assert len(first.attributes[PUT_ID]) == 26
    assert first.attributes[PUT_ID] != second.attributes[PUT_ID]


async def test_an_object_that_vanished_meanwhile_was_a_conflict(pauses: list[float]) -> None:
    """A writer must not succeed because the file of the winner was collected before its check."""

    class Collected(MemoryStore):
        async def head(self, key: str) -> ObjectMeta | None:
            await self.delete(key)
            return None

    memory = Collected()
    await memory.put("k", b"winner", attributes={PUT_ID: "someone"})
    with pytest.raises(AlreadyExists):
        await RetryingStore(memory, Env.system()).put("k", b"loser", mode=CREATE)
    assert await memory.list("") == []


async def test_denied_credentials_are_retried_unless_told_otherwise(pauses: list[float]) -> None:
    class Locked(MemoryStore):
        tries = 0

        async def get(self, key: str) -> GetResult | None:
            self.tries += 1
            if self.tries < 4:
                raise AccessDenied("403")
            return await super().get(key)

    locked = Locked()
    store = RetryingStore(locked, Env.system())
    assert await store.get("k") is None
    assert locked.tries == 4
    locked.tries = 0
    with pytest.raises(AccessDenied):
        await store.with_policy(RetryPolicy(fail_fast_auth=True)).get("k")
    assert locked.tries == 1


class Unlimited(RateLimit):
    """Admits every log line: these tests are about the limits of the retry layer itself."""

    def admit(self, event: str, error_type: str, now_s: float) -> int | None:
        return 0


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, object]]:
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    return [(line["event"], line["op"], line.get("attempts")) for line in lines]


async def test_an_outage_is_logged_at_powers_of_two_and_at_its_end(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shale.telemetry.log.RATE_LIMIT", Unlimited())
    caplog.set_level("INFO", "shale")
    _, faulty, store, _ = make()
    faulty.add(Rule(fault=Fault.BEFORE, op="head", times=9))
    await store.head("k")
    assert logged(caplog) == [
        ("store.request.retried", "head", 1),
        *[("store.request.failing", "head", attempts) for attempts in (2, 4, 8)],
        ("store.request.retried", "head", 10),
    ]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING", "WARNING", "INFO"]


async def test_refused_credentials_are_an_error_once_a_minute(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Locked(MemoryStore):
        async def get(self, key: str) -> GetResult | None:
            now_s[0] += 1.0
            if now_s[0] < 150:
                raise AccessDenied("403")
            return None

    class Watch(SystemClock):
        def monotonic_s(self) -> float:
            return now_s[0]

    now_s = [0.0]
    monkeypatch.setattr("shale.telemetry.log.RATE_LIMIT", Unlimited())
    caplog.set_level("ERROR", "shale")
    await RetryingStore(Locked(), Env(Watch(), random.Random(1), InlineCpu())).get("k")
    assert logged(caplog) == [("store.auth.failed", "get", None)] * 3


async def test_short_streams_are_one_put_and_long_ones_are_not(pauses: list[float]) -> None:
    memory, faulty, store, requests = make()

    async def parts(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield bytes(1024 * 1024)

    faulty.add(Rule(fault=Fault.BEFORE, op="put"))
    await store.put_stream("small", parts(3))
    await store.put_stream("large", parts(9))
    assert [request.op for request in requests] == ["put", "put", "put_stream"]
    assert [meta.size for meta in await memory.list("")] == [9 * 1024 * 1024, 3 * 1024 * 1024]


async def test_the_beginning_of_a_long_stream_is_let_go() -> None:
    handed_out: list[weakref.ref[array[int]]] = []

    async def parts() -> AsyncIterator[memoryview]:
        for _ in range(40):
            part = array("B", bytes(1024 * 1024))
            handed_out.append(weakref.ref(part))
            view = memoryview(part)
            del part
            yield view

    class Sink(MemoryStore):
        async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
            async for _part in parts:
                pass
            assert sum(part() is not None for part in handed_out) <= 2

    await RetryingStore(Sink(), Env(SystemClock(), random.Random(1), InlineCpu())).put_stream("large", parts())


async def test_a_frozen_process_hears_nothing_but_its_put_arrives() -> None:
    memory, faulty, store, _ = make()
    faulty.add(Rule(op="put", delay_after_s=0.001))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.put, "k", b"v")
        while not await memory.list(""):
            await anyio.lowlevel.checkpoint()
        faulty.freeze()
        with anyio.move_on_after(0.02) as scope:
            await store.get("k")
        assert scope.cancelled_caught
        faulty.thaw()
    assert await store.get("k") is not None


async def test_one_seed_gives_one_history() -> None:
    async def history(seed: int) -> list[str]:
        faulty = FaultyStore(MemoryStore(), random.Random(seed), FaultPlan(before=0.2, after=0.2, late=0.2))
        answers = []
        for index in range(50):
            try:
                await faulty.put(f"k{index % 7}", b"", mode=CREATE)
                answers.append("ok")
            except (UnavailableError, AlreadyExists) as error:
                answers.append(str(error))
        return answers

    assert await history(7) == await history(7)
    assert await history(7) != await history(8)


async def test_a_listing_goes_on_where_it_was(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages have arrived; the third request fails, and no object is lost or repeated."""
    for module in (memory_store, faulty_store):
        monkeypatch.setattr(module, "LIST_PAGE", 2)
    memory, faulty, store, requests = make()
    for number in range(7):
        await memory.put(f"db/{number}", b"v")
    faulty.add(Rule(fault=Fault.AFTER, op="list", skip=2, times=2))
    pages = [[meta.key for meta in page] async for page in store.list_pages("db/")]
    assert pages == [["db/0", "db/1"], ["db/2", "db/3"], ["db/4", "db/5"], ["db/6"]]
    assert len(requests) == 4 + 2
    assert len(pauses) == 2


async def test_of_many_deletions_those_that_fail_are_tried_once_more(pauses: list[float]) -> None:
    memory, faulty, store, _ = make()
    for number in range(5):
        await memory.put(f"db/{number}", b"v")
    faulty.add(Rule(fault=Fault.BEFORE, op="delete", key_contains="db/1", times=1))
    faulty.add(Rule(fault=Fault.BEFORE, op="delete", key_contains="db/3", times=2))
    problems = await store.delete_many([f"db/{number}" for number in range(4)])
    assert list(problems) == ["db/3"]
    assert [meta.key for meta in await memory.list("db/")] == ["db/3", "db/4"]
    assert pauses == []


async def test_an_open_of_one_handle_changes_no_request_of_another(pauses: list[float]) -> None:
    """Handles may share a store: what waits for a running database is retried, whatever is being opened."""
    memory, faulty, store, _ = make()
    await memory.put("k", b"v")
    faulty.add(Rule(fault=Fault.BEFORE, op="get", times=2))
    requests = OpeningRequests(lambda: None)

    async def opening_task() -> None:
        OPENING.set(requests)
        await store.head("k")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opening_task)
    assert await store.get("k") is not None
    assert requests.last_error is None
    assert len(pauses) == 2
