"""Versions of any value in a store: what is decoded and where, which parts learn of a commit, and errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shale.env import Env, InlineCpu
from shale.errors import CorruptionError, InvalidObjectState, LatestRecordMissing, ObjectVersionExists
from shale.format.names import compactions_key, manifest_key, parse_compactions_key, parse_manifest_key
from shale.protocol.options import ProtocolOptions
from shale.protocol.versioned import Namespace, Versioned, VersionList, VersionMeta, database_namespace
from shale.protocol.versioned_store import VersionedStore, cached_decoder
from shale.store.local_store.adapter import LocalStore
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run
from tests.unit.protocol.draws import Draws

T = TypeVar("T")
INLINE_MAX = 128 * 1024


class CountingCpu:
    """Runs work immediately and counts it."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return work()


class Values:
    """Encodes and decodes bytes as they are, and counts the decoding; ``bad`` cannot be decoded."""

    def __init__(self) -> None:
        self.decoded: list[bytes] = []
        self.checks: list[tuple[bytes, bytes]] = []
        self.accepted: list[tuple[bytes, str]] = []

    def decode(self, data: Any, _path: str) -> bytes:
        self.decoded.append(bytes(data))
        if data == b"bad":
            raise CorruptionError("bad bytes")
        return bytes(data)

    def namespace(self, root: str = "db", *, is_lossless: bool = False) -> Namespace[bytes]:
        return Namespace(
            resource="manifest",
            directory=f"{root}/manifest/",
            boundary_key=f"{root}/gc/manifest.boundary",
            key=lambda id_: manifest_key(root, id_),
            parse=lambda key: parse_manifest_key(root, key),
            encode=bytes,
            decode=self.decode,
            check=lambda base, new: self.checks.append((base, new)),
            accept=lambda value, key: self.accepted.append((value, key)),
            is_lossless=lambda _value: is_lossless,
        )


class Process:
    def __init__(self, store: MemoryStore | None = None, *, is_lossless: bool = False, env: Env | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock) if store is None else store
        self.cpu = CountingCpu()
        self.env = Env(self.clock, Draws(), self.cpu) if env is None else env
        self.metrics = Metrics()
        self.values = Values()
        self.versions = VersionedStore(
            self.store, self.values.namespace(is_lossless=is_lossless), self.env, self.metrics
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"slatedb_{name}", {"db": "", **labels})


@pytest.mark.parametrize(("size", "calls"), [(INLINE_MAX, 0), (INLINE_MAX + 1, 1)])
def test_large_values_are_decoded_outside_of_the_event_loop(size: int, calls: int) -> None:
    async def main() -> None:
        process = Process()
        await process.store.put(manifest_key("db", 1), bytes(size))
        assert await process.versions.read(1) == bytes(size)
        assert process.cpu.calls == calls
        await process.versions.read_latest()
        assert process.cpu.calls == 2 * calls

    run(main)


@pytest.mark.parametrize(("size", "calls"), [(INLINE_MAX, 0), (INLINE_MAX + 1, 1)])
def test_the_value_after_a_large_one_is_encoded_outside_of_the_event_loop(size: int, calls: int) -> None:
    async def main() -> None:
        process = Process(is_lossless=True)
        stored = await process.versions.create_new(bytes(size))
        assert process.cpu.calls == 0, "the size of the first one is not known"
        await process.versions.commit(stored.id, b"small")
        assert process.cpu.calls == calls
        await process.versions.commit(2, b"small")
        assert process.cpu.calls == calls
        reader = Process(process.store)
        await reader.store.put(manifest_key("db", 4), bytes(size))
        latest = await reader.versions.read_latest()
        reader.cpu.calls = 0
        await reader.versions.commit(latest.id, b"small")
        assert reader.cpu.calls == calls, "a large value was read before"

    run(main)


def test_equal_bytes_are_decoded_once() -> None:
    async def main() -> None:
        process = Process()
        for id_, data in ((1, b"one"), (2, b"one"), (3, b"two"), (4, b"three")):
            await process.store.put(manifest_key("db", id_), data)
            for _ in range(2):
                assert await process.versions.read_latest() == Versioned(id_, data)
        assert process.values.decoded == [b"one", b"two", b"three"]
        assert process.values.accepted == [
            (b"one", manifest_key("db", 1)), (b"two", manifest_key("db", 3)), (b"three", manifest_key("db", 4))
        ]  # fmt: skip

    run(main)


@pytest.mark.parametrize("is_lossless", [False, True])
def test_only_a_value_that_is_read_back_as_written_needs_no_decoding(is_lossless: bool) -> None:
    async def main() -> None:
        process = Process(is_lossless=is_lossless)
        await process.versions.try_read_latest()
        stored = await process.versions.create_new(b"one")
        assert (stored.id, stored.value) == (1, b"one")
        assert (await stored.refresh()) == Versioned(1, b"one")
        assert process.values.decoded == ([] if is_lossless else [b"one"])

    run(main)


def test_a_corrupt_version_names_its_key_and_is_read_again_after_a_repair() -> None:
    async def main() -> None:
        process = Process()
        key = manifest_key("db", 1)
        await process.store.put(key, b"bad")
        for count in (1, 2):
            with pytest.raises(CorruptionError, match="bad bytes") as caught:
                await process.versions.read_latest()
            assert caught.value.path == key
            assert process.metric("corruption_total", resource="manifest") == count
        await process.store.put(key, b"good")
        assert (await process.versions.read_latest()).value == b"good"
        assert process.values.accepted == [(b"good", key)]

    run(main)


def test_a_version_that_may_not_be_used_is_asked_for_again() -> None:
    async def main() -> None:
        process = Process()
        await process.store.put(manifest_key("db", 1), b"one")

        def refuse(_value: bytes, key: str) -> None:
            raise InvalidObjectState("refused", path=key)

        process.versions.namespace = Namespace(
            **{name: getattr(process.versions.namespace, name) for name in Namespace.__slots__} | {"accept": refuse}
        )
        for _ in range(2):
            with pytest.raises(InvalidObjectState, match="refused"):
                await process.versions.read_latest()

    run(main)


def test_gauges_tell_the_newest_version() -> None:
    async def main() -> None:
        process = Process(is_lossless=True)
        process.clock.sleep(7)
        stored = await process.versions.create_new(b"four")
        names = ("manifest_id", "manifest_bytes", "manifest_written_timestamp_seconds")
        assert [process.metric(name) for name in names] == [1, 4, process.clock.ms / 1000]
        written_ms = process.clock.ms
        process.clock.sleep(7)
        await process.store.put(manifest_key("db", 2), b"other")
        await stored.refresh()
        assert [process.metric(name) for name in names] == [2, 5, written_ms / 1000]

    run(main)


def test_other_parts_of_a_process_learn_of_a_commit() -> None:
    async def main() -> None:
        one = Process()
        two = Process(one.store, env=one.env)
        elsewhere = Process(one.store)
        calls: list[str] = []
        with one.versions.on_other_commit(lambda: calls.append("one")):
            with two.versions.on_other_commit(lambda: calls.append("two")):
                await one.versions.create_new(b"1")
                assert calls == ["two"]
                await two.versions.commit(1, b"2")
                assert calls == ["two", "one"]
                with pytest.raises(ObjectVersionExists):
                    await two.versions.commit(1, b"2")
                await elsewhere.versions.commit(2, b"3")
                assert calls == ["two", "one"], "another process, and a commit that failed"
            await one.versions.commit(3, b"4")
        assert calls == ["two", "one"]

    run(main)


@pytest.mark.parametrize(
    ("boundary", "left", "is_lost"),
    [
        (None, (), True),
        (None, (1,), False),
        (None, (3,), False),
        (None, (5,), True),
        (2, (), True),
        (3, (), False),
        (4, (), False),
    ],
)
def test_history_that_no_collector_removed_is_lost(boundary: int | None, left: tuple[int, ...], is_lost: bool) -> None:
    async def main() -> None:
        process = Process()
        for id_ in (4, *left):
            await process.store.put(manifest_key("db", id_), b"x")
        if boundary is not None:
            await process.store.put("db/gc/manifest.boundary", b"%d" % boundary)
        assert await process.versions.has_lost_history(4) is is_lost

    run(main)


def test_a_version_that_follows_another_one_costs_one_request() -> None:
    class Unlisted(MemoryStore):
        async def list_pages(self, prefix: str, *, after: str = "") -> Any:
            raise AssertionError("a listing")
            yield

        async def get(self, key: str) -> Any:
            raise AssertionError(f"a read of {key}")

    async def main() -> None:
        process = Process(Unlisted())
        await process.store.put(manifest_key("db", 3), b"x")
        assert not await process.versions.has_lost_history(4)

    run(main)


def test_a_version_above_the_boundary_is_not_deleted_as_one_behind_it() -> None:
    async def main() -> None:
        process = Process()
        for id_ in (1, 2, 3):
            await process.store.put(manifest_key("db", id_), b"x")
        await process.versions.advance_boundary(2)
        assert await process.versions.boundary() == 2
        await process.versions.delete_behind_boundary(2)
        with pytest.raises(InvalidObjectState, match="above the boundary") as caught:
            await process.versions.delete_behind_boundary(3)
        assert caught.value.path == manifest_key("db", 3)
        assert [version.id for version in await process.versions.list_versions()] == [1, 3]
        assert await process.versions.delete_many([1, 3]) == {}
        assert await process.versions.read(1) is None
        assert await process.versions.try_read_latest() is None
        assert await process.versions.read_base() is None

    run(main)


def test_the_base_of_a_write_is_not_compared_with_the_boundary() -> None:
    async def main() -> None:
        process = Process()
        await process.store.put(manifest_key("db", 1), b"x")
        await process.store.put("db/gc/manifest.boundary", b"5")
        assert await process.versions.read_base() == Versioned(1, b"x")
        with pytest.raises(InvalidObjectState, match="boundary 5 is at or above the latest id 1") as caught:
            await process.versions.try_read_latest()
        assert caught.value.path == "db/gc/manifest.boundary"

    run(main)


def test_every_newer_version_behind_the_boundary_gets_its_own_ten_attempts() -> None:
    """The boundary is advanced while a process reads: what it found is old each time, but not the same."""

    class Growing(MemoryStore):
        lists = 0

        async def list_pages(self, prefix: str, *, after: str = "") -> Any:
            self.lists += 1
            if self.lists % 9 == 0:
                await self.put(manifest_key("db", 1 + self.lists // 9), b"x")
            if self.lists == 30:
                await self.put(manifest_key("db", 60), b"newest")
            async for page in super().list_pages(prefix, after=after):
                yield page

    async def main() -> None:
        process = Process(Growing())
        await process.store.put(manifest_key("db", 1), b"x")
        await process.store.put("db/gc/manifest.boundary", b"50")
        assert await process.versions.read_latest() == Versioned(60, b"newest")
        assert process.metric("sequenced_latest_reads_total", resource="manifest", result="invalidated") == 29

    run(main)


def _missing(url: str, root: str, resource: str = "manifest") -> LatestRecordMissing:
    async def main() -> LatestRecordMissing:
        clock = ManualClock()
        key, parse = (
            (manifest_key, parse_manifest_key) if resource == "manifest" else (compactions_key, parse_compactions_key)
        )
        namespace: Namespace[bytes] = database_namespace(
            root, resource, key=key, parse=parse, encode=bytes, decode=lambda data, _path: bytes(data)
        )
        env = Env(clock, Draws(), InlineCpu())
        store: Any = LocalStore(Path(url.removeprefix("file://"))) if url.startswith("file") else MemoryStore(url=url)
        with pytest.raises(LatestRecordMissing) as caught:
            await VersionedStore(store, namespace, env).load()
        return caught.value

    return run(main)


@pytest.mark.parametrize(
    ("root", "resource", "message"),
    [
        ("a/db", "manifest", "no manifest below a/db/manifest/ in memory:///: there is no database at a/db; check"),
        ("", "manifest", "no manifest below manifest/ in memory:///: there is no database at /; check the URL"),
        ("db", "compactions", "no compactions below db/compactions/ in memory:///"),
    ],
)
def test_a_database_that_does_not_exist_is_named(root: str, resource: str, message: str) -> None:
    error = str(_missing("memory:///", root, resource))
    assert error.startswith(message)
    assert ("check the URL" in error) is (resource == "manifest")


def test_in_a_directory_similar_names_and_remains_are_named(tmp_path: Path) -> None:
    (tmp_path / "orders" / "manifest").mkdir(parents=True)
    assert "did you mean orders?" in str(_missing(f"file://{tmp_path}", "order"))
    for folder in ("wal", "compacted"):
        (tmp_path / "lost" / folder).mkdir(parents=True)
        (tmp_path / "lost" / folder / "x.sst").write_bytes(b"")
    error = str(_missing(f"file://{tmp_path}", "lost"))
    assert "although compacted and wal have files of a database: restore the manifests" in error


@pytest.mark.parametrize(("size", "calls"), [(32 * 1024, 1), (32 * 1024 + 1, 2)])
def test_values_of_small_files_are_cached_decoded(size: int, calls: int) -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> int:
        decoded.append(data)
        return len(data)

    cached = cached_decoder(decode)
    assert [cached(bytes(size), "one"), cached(memoryview(bytes(size)), "two")] == [size, size]
    assert len(decoded) == calls


def test_options_and_metrics_have_defaults() -> None:
    versions = VersionedStore(MemoryStore(), Values().namespace(), Env.system())
    assert versions.options == ProtocolOptions()


def test_a_list_of_versions_is_a_sequence() -> None:
    metas = [VersionMeta(1, -5, 10), VersionMeta(4, 2**40, 2**33), VersionMeta(9, 3, 0)]
    versions = VersionList(metas)
    assert (len(versions), list(versions), versions[1], versions[-1]) == (3, metas, metas[1], metas[2])
    assert (versions[1:], versions[:2], versions[::2]) == (metas[1:], metas[:2], metas[::2])
    assert list(versions.where(lambda version: version.size > 5)) == metas[:2]
    assert isinstance(versions.where(lambda _: False), VersionList)
    assert not VersionList()
    versions.append(VersionMeta(10, 4, 1))
    assert [version.id for version in versions] == [1, 4, 9, 10]
