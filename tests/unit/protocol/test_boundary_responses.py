"""Responses that arrive out of order, requests that a check costs, and the delays between attempts to advance."""

from typing import Any

import anyio
import pytest

from shale.env import Env, InlineCpu
from shale.errors import InvalidObjectState, ObjectVersionBehindBoundary, ProtocolPanic, UnavailableError
from shale.format.names import boundary_key, manifest_key, parse_manifest_key
from shale.protocol.boundary import Boundary
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.versioned import database_namespace
from shale.store.memory import MemoryStore
from shale.store.port import CREATE, NOT_MODIFIED, GetResult, NotModified, ObjectMeta, Update
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run
from tests.unit.protocol.draws import Draws, doubling

KEY = boundary_key("db", "manifest")
NAMESPACE = database_namespace(
    "db", "manifest", key=manifest_key, parse=parse_manifest_key, encode=bytes, decode=lambda data, _path: bytes(data)
)


def found(value: int, etag: str | None = "etag") -> GetResult:
    return GetResult(b"%d" % value, ObjectMeta(KEY, 1, 0, etag))


class Scripted(MemoryStore):
    """Responds to each read as the test says, when it says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.responses: list[tuple[GetResult | NotModified | None, anyio.Event | None]] = []
        self.requests: list[str] = []
        self.modes: list[Any] = []
        self.takes_s = 0.0

    async def _respond(self) -> GetResult | NotModified | None:
        self.clock.sleep(self.takes_s)
        response, event = self.responses.pop(0)
        if event is not None:
            await event.wait()
        return response

    async def get(self, key: str) -> GetResult | None:
        assert key == KEY
        self.requests.append("get")
        response = await self._respond()
        assert not isinstance(response, NotModified)
        return response

    async def get_if_changed(self, key: str, etag: str) -> GetResult | NotModified | None:
        assert key == KEY
        self.requests.append(f"get if not {etag}")
        return await self._respond()

    async def put(self, key: str, *args: Any, mode: Any, **options: Any) -> str | None:
        self.modes.append(mode)
        return await super().put(key, *args, mode=mode, **options)


class Process:
    def __init__(self, missing: MissingBoundary = MissingBoundary.PANIC) -> None:
        self.clock = ManualClock()
        self.store = Scripted(self.clock)
        self.draws = Draws()
        self.metrics = Metrics()
        self.boundary = Boundary(
            self.store,
            NAMESPACE,
            Env(self.clock, self.draws, InlineCpu()),
            self.metrics,
            ProtocolOptions(missing_boundary=missing),
        )

    def respond(self, response: GetResult | NotModified | None, when: anyio.Event | None = None) -> None:
        self.store.responses.append((response, when))

    def metric(self, name: str, **labels: str) -> float:
        labels = {"db": "", "resource": "manifest", **labels}
        return self.metrics.registry.get_sample_value(f"slatedb_boundary_{name}", labels) or 0

    def checks(self) -> dict[tuple[str, str], float]:
        """Return the counters of checks that are not zero."""
        counts = {
            (result, cached): self.metric("checks_total", result=result, cached=cached)
            for result in ("ok", "stale", "error")
            for cached in ("true", "false")
        }
        return {labels: count for labels, count in counts.items() if count}


async def overlapping(process: Process, late: GetResult | NotModified | None, *early: GetResult | NotModified) -> int:
    """Read once with a response that arrives after those of later reads; return its value."""
    release, values = anyio.Event(), []

    async def read() -> None:
        values.append(await process.boundary.read())

    process.respond(late, release)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        for response in early:
            process.respond(response)
            await process.boundary.read()
        release.set()
    return int(values[0])


def test_the_observed_value_is_the_highest_that_was_read() -> None:
    async def main() -> None:
        process = Process()
        assert process.boundary.observed is None
        process.respond(None)
        assert (await process.boundary.read(), process.boundary.observed) == (0, None)
        process.respond(found(4))
        assert (await process.boundary.read(), process.boundary.observed) == (4, 4)
        assert process.metric("value") == 4

    run(main)


def test_only_a_check_above_the_known_value_reads() -> None:
    async def main() -> None:
        process = Process()
        process.respond(found(8, "a"))
        await process.boundary.check(9)
        assert process.checks() == {("ok", "false"): 1}
        with pytest.raises(ObjectVersionBehindBoundary) as caught:
            await process.boundary.check(8)
        assert (caught.value.id, caught.value.boundary) == (8, 8)
        assert process.checks() == {("ok", "false"): 1, ("stale", "true"): 1}
        process.respond(NOT_MODIFIED)
        await process.boundary.check(9)
        assert process.checks() == {("ok", "false"): 1, ("ok", "true"): 1, ("stale", "true"): 1}
        process.respond(found(9, "b"))
        with pytest.raises(ObjectVersionBehindBoundary):
            await process.boundary.check(9)
        assert process.checks() == {
            ("ok", "false"): 1, ("ok", "true"): 1, ("stale", "true"): 1, ("stale", "false"): 1
        }  # fmt: skip
        assert process.store.requests == ["get", "get if not a", "get if not a"]

    run(main)


def test_the_duration_of_checks_is_measured() -> None:
    async def main() -> None:
        process = Process()
        process.store.takes_s = 2
        process.respond(found(8))
        await process.boundary.check(9)
        with pytest.raises(ObjectVersionBehindBoundary):
            await process.boundary.check(8)
        assert process.metric("check_duration_seconds_sum") == 2
        assert process.metric("check_duration_seconds_count") == 2

    run(main)


@pytest.mark.parametrize("missing", MissingBoundary)
def test_an_early_read_that_found_no_file_contradicts_nothing(missing: MissingBoundary) -> None:
    async def main() -> None:
        process = Process(missing)
        assert await overlapping(process, None, found(5)) == 0
        assert process.boundary.observed == 5

    run(main)


def test_a_file_that_was_confirmed_meanwhile_did_not_disappear() -> None:
    async def main() -> None:
        process = Process()
        process.respond(found(5))
        await process.boundary.read()
        assert await overlapping(process, None, NOT_MODIFIED) == 0
        assert process.boundary.observed == 5
        process.respond(None)
        with pytest.raises(ProtocolPanic, match="disappeared"):
            await process.boundary.read()

    run(main)


def test_a_file_that_is_missing_later_is_forgotten_if_that_is_allowed() -> None:
    async def main() -> None:
        process = Process(MissingBoundary.ZERO)
        process.respond(found(5))
        await process.boundary.read()
        process.respond(None)
        assert (await process.boundary.read(), process.boundary.observed) == (0, None)
        process.respond(found(3))
        assert (await process.boundary.read(), process.boundary.observed) == (3, 3)
        assert process.store.requests == ["get", "get if not etag", "get"]

    run(main)


def test_an_older_response_that_arrives_late_gives_the_newer_value() -> None:
    async def main() -> None:
        process = Process()
        assert await overlapping(process, found(5), found(9)) == 9
        assert (process.boundary.observed, process.metric("value")) == (9, 9)
        process.respond(found(8))
        with pytest.raises(InvalidObjectState, match="went back from 9 to 8") as caught:
            await process.boundary.read()
        assert caught.value.path == KEY

    run(main)


def test_an_equal_value_under_a_new_etag_replaces_the_etag() -> None:
    async def main() -> None:
        process = Process()
        for etag in ("a", "b"):
            process.respond(found(5, etag))
            await process.boundary.read()
        process.respond(NOT_MODIFIED)
        await process.boundary.read()
        assert process.store.requests == ["get", "get if not a", "get if not b"]

    run(main)


def test_not_modified_means_nothing_after_the_value_was_forgotten() -> None:
    async def main() -> None:
        process = Process(MissingBoundary.ZERO)
        process.respond(found(5))
        await process.boundary.read()
        release, errors = anyio.Event(), []

        async def read() -> None:
            with pytest.raises(InvalidObjectState, match="not modified, but never read") as caught:
                await process.boundary.read()
            errors.append(caught.value)

        process.respond(NOT_MODIFIED, release)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            process.respond(None)
            assert await process.boundary.read() == 0
            release.set()
        assert [error.path for error in errors] == [KEY]

    run(main)


def test_an_advance_replaces_exactly_what_was_read() -> None:
    async def main() -> None:
        process = Process()
        process.respond(None)
        await process.boundary.advance(3)
        first = process.store.objects[KEY].meta.etag
        assert first is not None
        await process.boundary.advance(3)
        await process.boundary.advance(4)
        written = process.store.objects[KEY]
        assert written.data == b"4"
        assert process.store.modes == [CREATE, Update(first)]
        assert process.boundary.observed == 4
        assert [process.metric("advances_total", result=each) for each in ("ok", "noop", "conflict")] == [2, 1, 0]

    run(main)


@pytest.mark.parametrize("conflicts", [1, 3, 6])
def test_conflicts_of_an_advance_cost_growing_delays(conflicts: int) -> None:
    async def main() -> None:
        process = Process()
        await process.store.put(KEY, b"1", mode=CREATE)
        etag = process.store.objects[KEY].meta.etag
        for _ in range(conflicts):
            process.respond(found(1, "old"))
        process.respond(found(1, etag))
        await process.boundary.advance(7)
        assert process.store.objects[KEY].data == b"7"
        assert process.draws.limits == pytest.approx(doubling(max(0, conflicts - 3)))
        assert [process.metric("advances_total", result=each) for each in ("ok", "conflict")] == [1, conflicts]

    run(main)


def test_an_advance_that_another_process_made_is_not_repeated() -> None:
    async def main() -> None:
        process = Process()
        await process.store.put(KEY, b"7", mode=CREATE)
        process.respond(None)
        process.respond(found(7))
        await process.boundary.advance(7)
        assert process.store.objects[KEY].data == b"7"
        assert [process.metric("advances_total", result=each) for each in ("ok", "noop", "conflict")] == [0, 0, 1]

    run(main)


def test_a_failed_advance_is_counted() -> None:
    async def main() -> None:
        process = Process()
        process.respond(found(1, None))
        with pytest.raises(UnavailableError, match=KEY):
            await process.boundary.advance(7)
        assert process.metric("advances_total", result="error") == 1

    run(main)
