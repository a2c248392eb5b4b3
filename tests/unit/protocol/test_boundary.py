"""Traces T2 of docs/reference/protocol.md 2.10, and the edge cases of 2.4 to 2.6."""

import anyio
import pytest

from shale.errors import InvalidObjectState, ObjectVersionBehindBoundary, ProtocolPanic, UnavailableError
from shale.protocol.boundary import Boundary
from shale.protocol.options import MissingBoundary
from shale.store.port import GetResult, ObjectMeta
from tests.unit.protocol.conftest import ROOT, Process, World, run

KEY = f"{ROOT}/gc/manifest.boundary"


def boundary_of(process: Process) -> Boundary:
    return process.manifests._boundary


class Held:
    """A store that holds the response of one read until the test releases it."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.reads: list[str] = []
        self.release = anyio.Event()
        self.hold_next = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def get(self, key: str) -> object:
        self.reads.append("get")
        return await self._answer(await self.inner.get(key))  # type: ignore[attr-defined]

    async def get_if_changed(self, key: str, etag: str) -> object:
        self.reads.append("if changed")
        return await self._answer(await self.inner.get_if_changed(key, etag))  # type: ignore[attr-defined]

    async def _answer(self, answer: object) -> object:
        if self.hold_next:
            self.hold_next = False
            await self.release.wait()
        return answer


def test_t2b_a_writer_with_an_old_boundary_reads_again(world: World) -> None:
    async def main() -> None:
        a, gc = world.process(), world.process()
        assert await boundary_of(a).read() == 0
        await boundary_of(gc).advance(8)
        with pytest.raises(ObjectVersionBehindBoundary) as caught:
            await boundary_of(a).check(6)
        assert (caught.value.id, caught.value.boundary) == (6, 8)
        assert a.metric("slatedb_boundary_checks_total", resource="manifest", result="stale", cached="false") == 1
        with pytest.raises(ObjectVersionBehindBoundary):
            await boundary_of(a).check(8)
        assert a.metric("slatedb_boundary_checks_total", resource="manifest", result="stale", cached="true") == 1

    run(main)


def test_t2c_an_older_answer_that_arrives_late_changes_nothing(world: World) -> None:
    async def main() -> None:
        held = Held(world.memory)
        a, gc = world.process(through=lambda _: held), world.process()
        await boundary_of(gc).advance(5)
        values: list[int] = []

        async def early() -> None:
            values.append(await boundary_of(a).read())

        async with anyio.create_task_group() as tasks:
            held.hold_next = True
            tasks.start_soon(early)
            await anyio.wait_all_tasks_blocked()
            await boundary_of(gc).advance(9)
            values.append(await boundary_of(a).read())
            held.release.set()
        assert values == [9, 9]
        with pytest.raises(ObjectVersionBehindBoundary):
            await boundary_of(a).check(9)

    run(main)


def test_t2d_not_modified_costs_one_request_without_a_body(world: World) -> None:
    async def main() -> None:
        held = Held(world.memory)
        a = world.process(through=lambda _: held)
        await boundary_of(a).advance(8)
        held.reads.clear()
        await boundary_of(a).check(11)
        assert held.reads == ["if changed"]
        assert a.metric("slatedb_boundary_checks_total", resource="manifest", result="ok", cached="true") == 1

    run(main)


def test_a_missing_file_is_not_counted_as_a_confirmation_of_the_cache(world: World) -> None:
    async def main() -> None:
        a = world.process()
        for number in (1, 2):
            await boundary_of(a).check(5)
            assert [
                a.metric("slatedb_boundary_checks_total", resource="manifest", result="ok", cached=cached)
                for cached in ("false", "true")
            ] == [number, 0]

    run(main)


def test_t2e_a_padded_number(world: World) -> None:
    async def main() -> None:
        await world.memory.put(KEY, b"0001\n")
        assert await world.process().manifests.boundary() == 1

    run(main)


@pytest.mark.parametrize("garbage", [b"", b"abc", b"-3", b"18446744073709551616"])
def test_garbage_names_the_file(world: World, garbage: bytes) -> None:
    async def main() -> None:
        await world.memory.put(KEY, garbage)
        a = world.process()
        with pytest.raises(InvalidObjectState) as caught:
            await boundary_of(a).check(3)
        assert caught.value.path == KEY
        assert a.metric("slatedb_boundary_checks_total", resource="manifest", result="error", cached="false") == 1

    run(main)


def test_advance_is_monotone_and_counts_its_attempts(world: World) -> None:
    async def main() -> None:
        x, y = world.process(), world.process()
        await boundary_of(x).advance(5)
        await boundary_of(y).advance(3)
        assert await world.process().manifests.boundary() == 5
        await boundary_of(y).advance(9)
        await boundary_of(x).advance(12)  # its etag is old: one lost update, then the read that repairs it
        assert (await world.memory.get(KEY)).data == b"12"  # type: ignore[union-attr]
        advances = "slatedb_boundary_advances_total"
        assert x.metric(advances, resource="manifest", result="ok") == 2
        assert x.metric(advances, resource="manifest", result="conflict") == 1
        assert y.metric(advances, resource="manifest", result="noop") == 1
        assert x.metric("slatedb_boundary_value", resource="manifest") == 12

    run(main)


def test_two_first_advances(world: World) -> None:
    async def main() -> None:
        x, y = world.process(), world.process()
        assert await boundary_of(x).read() == await boundary_of(y).read() == 0
        await boundary_of(x).advance(4)
        await boundary_of(y).advance(6)
        assert await world.process().manifests.boundary() == 6

    run(main)


def test_a_missing_file_after_it_was_seen(world: World) -> None:
    async def main() -> None:
        strict, lenient = world.process(), world.process(missing_boundary=MissingBoundary.ZERO)
        await boundary_of(strict).advance(4)
        assert await boundary_of(lenient).read() == 4
        await world.memory.delete(KEY)
        with pytest.raises(ProtocolPanic, match="disappeared"):
            await boundary_of(strict).check(7)
        await boundary_of(lenient).check(7)
        await boundary_of(lenient).check(3)  # the old value is forgotten, as in SlateDB
        await boundary_of(lenient).advance(6)
        assert (await world.memory.get(KEY)).data == b"6"  # type: ignore[union-attr]

    run(main)


def test_a_vanished_file_does_not_hold_up_an_advance_for_ever(world: World) -> None:
    """SlateDB retries the update of the deleted object for ever."""

    async def main() -> None:
        lenient = world.process(missing_boundary=MissingBoundary.ZERO)
        await boundary_of(lenient).advance(4)
        await world.memory.delete(KEY)
        with anyio.fail_after(60):
            await boundary_of(lenient).advance(6)
        assert (await world.memory.get(KEY)).data == b"6"  # type: ignore[union-attr]

    run(main)


def test_a_boundary_that_went_back_is_corruption(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await boundary_of(a).advance(9)
        await world.memory.put(KEY, b"5")
        with pytest.raises(InvalidObjectState, match="went back from 9 to 5"):
            await boundary_of(a).check(11)

    run(main)


class NoEtags:
    """A store without ETags."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def get(self, key: str) -> GetResult | None:
        got: GetResult | None = await self.inner.get(key)  # type: ignore[attr-defined]
        return None if got is None else GetResult(got.data, ObjectMeta(key, got.meta.size, got.meta.last_modified_ms))


def test_without_etags_the_boundary_is_not_overwritten(world: World) -> None:
    async def main() -> None:
        await world.memory.put(KEY, b"3")
        a = world.process(through=NoEtags)
        with pytest.raises(UnavailableError, match="no etag"):
            await boundary_of(a).advance(5)
        assert (await world.memory.get(KEY)).data == b"3"  # type: ignore[union-attr]
        assert a.metric("slatedb_boundary_advances_total", resource="manifest", result="error") == 1

    run(main)


def test_disabled_boundaries_are_checked_but_not_advanced(world: World) -> None:
    async def main() -> None:
        a = world.process(boundary_files_enabled=False)
        await a.manifests.advance_boundary(5)
        assert await world.memory.get(KEY) is None
        await boundary_of(world.process()).advance(5)
        with pytest.raises(ObjectVersionBehindBoundary):
            await boundary_of(a).check(5)

    run(main)
