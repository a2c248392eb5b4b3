"""Traces T1 of docs/reference/protocol.md 1.8."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from shale.errors import InvalidObjectState, LatestRecordMissing, ObjectVersionBehindBoundary, ObjectVersionExists
from shale.protocol.manifest_store import ManifestStore
from shale.store.port import ObjectMeta
from shale.types import Manifest, Seq
from tests.unit.protocol.conftest import ROOT, World, run


def with_seq(manifest: Manifest, seq: int) -> Manifest:
    return replace(manifest, last_l0_seq=Seq(seq))


async def write_until(store: ManifestStore, last_id: int) -> None:
    """Append versions; version ``i`` has ``last_l0_seq == i``."""
    latest = await store.try_read_latest()
    if latest is None:
        latest = (await store.create_new(with_seq(Manifest(), 1))).current
    while latest.id < last_id:
        latest = await store.commit(latest.id, with_seq(latest.value, latest.id + 1))


def test_t1a_two_creators_of_the_first_version(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await a.manifests.create_new(Manifest())
        with pytest.raises(ObjectVersionExists):
            await b.manifests.create_new(Manifest())
        stored = await b.manifests.load()
        assert (await stored.apply(lambda current: with_seq(current.value, 7))).id == 2

    run(main)


def test_t1b_a_loser_refreshes_and_writes_on_top(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await write_until(a.manifests, 5)
        mine = await a.manifests.load()
        await write_until(b.manifests, 7)
        written = await mine.apply(lambda current: with_seq(current.value, current.value.last_l0_seq + 100))
        assert (written.id, written.value.last_l0_seq) == (8, 107)

    run(main)


class Requests:
    """A store that forwards and records all requests."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.made: list[str] = []

    def __getattr__(self, name: str) -> object:
        value = getattr(self.inner, name)
        if name not in {"get", "get_if_changed", "list_pages", "put", "head"}:
            return value

        def noted(key: str, *args: object, **kwargs: object) -> object:
            self.made.append(f"{name.removesuffix('_pages')} {key.removeprefix(ROOT)}")
            return value(key, *args, **kwargs)

        return noted


def test_t1c_after_four_hits_a_listing_decides(world: World) -> None:
    async def main() -> None:
        requests = Requests(world.memory)
        a, b = world.process(through=lambda _: requests), world.process()
        await write_until(b.manifests, 5)
        assert (await a.manifests.read_latest()).id == 5
        await write_until(b.manifests, 12)
        requests.made.clear()
        assert (await a.manifests.read_latest()).id == 12
        reads = [made for made in requests.made if "boundary" not in made]
        probes = [f"get /manifest/{n:020}.manifest" for n in (6, 7, 8, 9)]
        assert reads == [*probes, "list /manifest/", f"get /manifest/{12:020}.manifest"]
        requests.made.clear()
        assert (await a.manifests.read_latest()).id == 12
        assert [made for made in requests.made if "boundary" not in made] == [f"get /manifest/{13:020}.manifest"]
        assert a.metric("slatedb_sequenced_latest_reads_total", resource="manifest", result="list_fallback") == 1

    run(main)


class OldLists:
    """A store whose first lists lack the newest files."""

    def __init__(self, inner: object, *, lists: int, last_id: int) -> None:
        self._inner = inner
        self._last_key = f"{ROOT}/manifest/{last_id:020}.manifest"
        self.left = lists

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        is_old, self.left = self.left > 0, max(0, self.left - 1)
        async for page in self._inner.list_pages(prefix, after=after):  # type: ignore[attr-defined]
            yield [meta for meta in page if not is_old or meta.key <= self._last_key]


@pytest.mark.parametrize(("is_there", "lists"), [(True, 3), (False, 3), (True, 1000)])
def test_a_list_without_a_file_that_was_seen_is_old_if_the_file_exists(
    world: World, is_there: bool, lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shale.protocol.sequenced.OLD_LISTS_MAX", 3)

    async def main() -> None:
        old_lists = OldLists(world.memory, lists=0, last_id=5)
        a, b = world.process(through=lambda _: old_lists), world.process()
        await write_until(b.manifests, 9)
        stored = await a.manifests.load()
        assert stored.current.id == 9
        if not is_there:
            for file_id in range(6, 10):
                await world.memory.delete(f"{ROOT}/manifest/{file_id:020}.manifest")
        world.clock.sleep(1000)
        old_lists.left = lists
        if is_there and lists < 1000:
            assert (await stored.refresh()).id == 9
            assert old_lists.left == 0
        else:
            with pytest.raises(InvalidObjectState, match="version 9 was the latest"):
                await stored.refresh()
            assert old_lists.left < lists

    run(main)


@pytest.mark.parametrize("asleep_s", [1, 1000])
def test_t1d_a_probe_into_deleted_ids_does_not_revive_an_old_version(world: World, asleep_s: int) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await write_until(a.manifests, 5)
        await write_until(b.manifests, 11)
        await b.manifests.advance_boundary(9)
        for doomed in range(1, 10):
            await b.manifests.delete(doomed)
        world.clock.sleep(asleep_s)
        assert (await a.manifests.read_latest()).id == 11
        invalidated = a.metric("slatedb_sequenced_latest_reads_total", resource="manifest", result="invalidated")
        assert invalidated == (1 if asleep_s < 60 else 0)

    run(main)


def test_t1g_foreign_names_are_ignored(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """They are logged, unless a local store has made them while it writes a file."""

    async def main() -> None:
        a = world.process()
        await write_until(a.manifests, 2)
        others = ["foo.txt", "abc.manifest", "7.manifest", f"{7:020}.manifest.tmp", f"{7:020}.x.manifest"]
        for junk in (*others, f"{7:020}.manifest#3"):
            await world.memory.put(f"{ROOT}/manifest/{junk}", b"junk")
        fresh = world.process()
        assert [version.id for version in await fresh.manifests.list_versions()] == [1, 2]
        logged = [line for record in caplog.records if "unknown_file" in (line := record.getMessage())]
        assert [sum(f"manifest/{junk}" in line for line in logged) for junk in others] == [1] * len(others)
        assert len(logged) == len(others)
        assert (await fresh.manifests.read_latest()).id == 2

    run(main)


@pytest.mark.fault("F1.8")
def test_an_old_proof_does_not_let_a_probe_decide(world: World) -> None:
    """With boundaries off, only the age of the proof protects a stalled process from an old version."""

    async def main() -> None:
        a, b = world.process(), world.process(boundary_files_enabled=False)
        await write_until(a.manifests, 3)
        await write_until(b.manifests, 9)
        for doomed in range(1, 9):
            await b.manifests.delete(doomed)
        world.clock.sleep(61)
        assert (await a.manifests.read_latest()).id == 9

    run(main)


def test_a_create_answered_late_is_not_a_commit(world: World) -> None:
    """2.7: with boundaries off, the writer's own clock shows that its base may be deleted."""

    async def main() -> None:
        a, b = world.process(), world.process(boundary_files_enabled=False)
        await write_until(a.manifests, 3)
        stored = await a.manifests.load()
        await write_until(b.manifests, 9)
        for doomed in range(1, 9):
            await b.manifests.delete(doomed)
        world.clock.sleep(61)
        with pytest.raises(ObjectVersionExists):
            await a.manifests.commit(stored.id, with_seq(stored.value, 50))
        written = await stored.apply(lambda current: with_seq(current.value, current.value.last_l0_seq + 1))
        assert (written.id, written.value.last_l0_seq) == (10, 10)

    run(main)


def test_a_create_answered_late_but_newest_is_a_commit(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await write_until(a.manifests, 3)
        world.clock.sleep(3600)
        assert (await a.manifests.commit(3, with_seq(Manifest(), 4))).id == 4

    run(main)


@pytest.mark.fault("F1.9")
def test_a_listed_file_that_is_gone_is_looked_for_again(world: World) -> None:
    """The collector deletes the version that the listing returned as the highest; a newer one must exist."""

    async def main() -> None:
        a = world.process()
        await write_until(a.manifests, 3)
        b = world.process()
        listed = [ObjectMeta(f"{ROOT}/manifest/{2:020}.manifest", 1, 0)]
        original = world.memory.list

        async def stale_once(prefix: str) -> list[ObjectMeta]:
            world.memory.list = original  # type: ignore[method-assign]
            await world.memory.delete(listed[0].key)
            return listed

        world.memory.list = stale_once  # type: ignore[method-assign]
        assert (await b.manifests.read_latest()).id == 3

    run(main)


def test_a_boundary_at_the_latest_is_reported_after_ten_spins(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await write_until(a.manifests, 3)
        await world.memory.put(f"{ROOT}/gc/manifest.boundary", b"3")
        b = world.process()
        with pytest.raises(InvalidObjectState, match="at or above"):
            await b.manifests.read_latest()
        assert b.metric("slatedb_sequenced_latest_reads_total", resource="manifest", result="invalidated") == 10

    run(main)


def test_loading_without_a_version_raises(world: World) -> None:
    async def main() -> None:
        a = world.process()
        assert await a.manifests.try_read_latest() is None
        with pytest.raises(LatestRecordMissing):
            await a.manifests.load()

    run(main)


def test_a_version_below_the_boundary_stays_readable_by_id(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await write_until(a.manifests, 5)
        await a.manifests.advance_boundary(4)
        read = await a.manifests.read(2)
        assert read is not None
        assert read.last_l0_seq == 2
        await a.manifests.delete_behind_boundary(2)
        assert await a.manifests.read(2) is None
        with pytest.raises(InvalidObjectState):
            await a.manifests.delete_behind_boundary(5)

    run(main)


def test_t2a_a_deleted_id_cannot_be_committed_again(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await write_until(a.manifests, 5)
        sleeper = await a.manifests.load()
        await write_until(b.manifests, 9)
        await b.manifests.advance_boundary(8)
        for doomed in range(1, 9):
            await b.manifests.delete(doomed)
        with pytest.raises(ObjectVersionBehindBoundary) as caught:
            await a.manifests.commit(5, with_seq(sleeper.value, 99))
        assert (caught.value.id, caught.value.boundary) == (6, 8)
        assert a.metric("slatedb_boundary_rejected_writes_total", resource="manifest") == 1
        base = await a.manifests.read_base()
        assert base is not None
        assert base.id == 9, "the refused version is not taken for the newest"
        assert (await world.process().manifests.read_latest()).id == 9
        written = await sleeper.apply(lambda current: with_seq(current.value, current.value.last_l0_seq + 1))
        assert (written.id, written.value.last_l0_seq) == (10, 10)

    run(main)
