"""The contract of every adapter: one suite, run on each of them by ``test_adapters.py``.

A test gets ``store``, a fresh and empty store, and leaves whatever it likes in it.
"""

from collections.abc import AsyncIterator

import anyio
import pytest

from shale.errors import AlreadyExists, ConflictError, CorruptionError, NotFoundError, Precondition
from shale.store.port import CREATE, NOT_MODIFIED, GetResult, ObjectMeta, ObjectStore, Update


async def get(store: ObjectStore, key: str) -> GetResult:
    got = await store.get(key)
    assert got is not None, key
    return got


async def read(store: ObjectStore, key: str) -> bytes:
    return bytes((await get(store, key)).data)


async def head(store: ObjectStore, key: str) -> ObjectMeta:
    meta = await store.head(key)
    assert meta is not None, key
    return meta


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key for meta in await store.list(prefix)]


class StoreConformance:
    """The suite.  Subclasses provide the fixture ``store``."""

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["empty", "small", "large"])
    async def test_an_object_comes_back_as_it_was_put(self, store: ObjectStore, data: bytes) -> None:
        etag = await store.put("db/a", data)
        got = await get(store, "db/a")
        assert bytes(got.data) == data
        assert isinstance(got.data, memoryview)
        assert (got.meta.key, got.meta.size, got.meta.etag) == ("db/a", len(data), etag)
        assert etag
        meta = await head(store, "db/a")
        assert (meta.size, meta.etag) == (len(data), etag)
        assert abs(meta.last_modified_ms - got.meta.last_modified_ms) < 1000

    @pytest.mark.parametrize("make", [bytearray, memoryview, lambda data: [data[:3], b"", memoryview(data[3:])]])
    async def test_any_buffer_can_be_put_and_reused(self, store: ObjectStore, make) -> None:  # type: ignore[no-untyped-def]
        data = bytearray(b"hello world")
        await store.put("db/a", make(data))
        data[:] = b"xxxxxxxxxxx"
        assert await read(store, "db/a") == b"hello world"

    async def test_absent_objects_return_none_or_raise_not_found(self, store: ObjectStore) -> None:
        assert await store.get("db/none") is None
        assert await store.get_if_changed("db/none", "etag") is None
        assert await store.get_range("db/none", 0, 10) is None
        assert await store.head("db/none") is None
        assert await store.list("db/") == []
        await store.delete("db/none")
        with pytest.raises(NotFoundError):
            await store.copy("db/none", "db/other")

    async def test_create_meets_an_object(self, store: ObjectStore) -> None:
        await store.put("db/a", b"1", mode=CREATE)
        with pytest.raises(AlreadyExists):
            await store.put("db/a", b"2", mode=CREATE)
        with pytest.raises(AlreadyExists):
            await store.put("db/a", b"1", mode=CREATE)
        assert await read(store, "db/a") == b"1"
        await store.delete("db/a")
        await store.put("db/a", b"3", mode=CREATE)
        assert await read(store, "db/a") == b"3"

    async def test_update_needs_the_version(self, store: ObjectStore) -> None:
        first = await store.put("db/a", b"1", mode=CREATE)
        assert first
        second = await store.put("db/a", b"2", mode=Update(first))
        assert second
        assert second != first
        with pytest.raises(Precondition):
            await store.put("db/a", b"3", mode=Update(first))
        assert await read(store, "db/a") == b"2"
        assert (await head(store, "db/a")).etag == second
        await store.delete("db/a")
        with pytest.raises(Precondition):
            await store.put("db/a", b"3", mode=Update(second))
        assert await store.get("db/a") is None

    async def test_overwrite_changes_the_etag(self, store: ObjectStore) -> None:
        first = await store.put("db/a", b"1")
        second = await store.put("db/a", b"2")
        assert first != second
        assert await read(store, "db/a") == b"2"

    @pytest.mark.parametrize("kind", ["create", "update"])
    async def test_a_race_has_one_winner(self, store: ObjectStore, kind: str) -> None:
        for round_ in range(4):
            key = f"db/{kind}-{round_}"
            mode = CREATE if kind == "create" else Update(await store.put(key, b"start") or "")
            winners: list[int] = []

            async def attempt(number: int, key: str = key, mode=mode, winners: list[int] = winners) -> None:  # type: ignore[no-untyped-def]
                try:
                    await store.put(key, b"%d" % number, mode=mode)
                except ConflictError:
                    return
                winners.append(number)

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(attempt, number)
            assert len(winners) == 1
            assert await read(store, key) == b"%d" % winners[0]

    async def test_a_conditional_get_sees_only_news(self, store: ObjectStore) -> None:
        etag = await store.put("db/a", b"1")
        assert etag
        assert await store.get_if_changed("db/a", etag) is NOT_MODIFIED
        await store.put("db/a", b"2")
        got = await store.get_if_changed("db/a", etag)
        assert isinstance(got, GetResult)
        assert bytes(got.data) == b"2"

    async def test_ranges(self, store: ObjectStore) -> None:
        data = bytes(range(250)) * 4000
        await store.put("db/a", data)
        for start, end in [(0, 1), (0, 1_000_000), (999_999, 1_000_000), (123_456, 987_654), (17, 17)]:
            part = await store.get_range("db/a", start, end)
            assert part is not None
            assert bytes(part) == data[start:end]

    @pytest.mark.parametrize(("start", "end"), [(0, 11), (5, 99), (10, 11), (50, 60)])
    async def test_a_range_beyond_the_end_is_corruption(self, store: ObjectStore, start: int, end: int) -> None:
        await store.put("db/a", b"0123456789")
        with pytest.raises(CorruptionError) as caught:
            await store.get_range("db/a", start, end)
        assert caught.value.path == "db/a"
        assert caught.value.offset == 10

    async def test_pages_hold_what_a_listing_holds(self, store: ObjectStore) -> None:
        for key in ("db/m/2", "db/m-/1", "db/m/sub/1", "db/m0", "db/m/10", "dbx/1", "db/.deleting"):
            await store.put(key, b"abc")
        listed = await store.list("db/")
        assert [meta async for page in store.list_pages("db/") for meta in page] == listed
        for after in ("db/m-/1", "db/m/1", "db/zzz"):
            pages = [page async for page in store.list_pages("db/", after=after)]
            assert all(pages), "no page is empty"
            assert [meta.key for page in pages for meta in page] == [meta.key for meta in listed if meta.key > after]
        assert [page async for page in store.list_pages("none/")] == []

    async def test_many_are_deleted_at_once(self, store: ObjectStore) -> None:
        for number in range(5):
            await store.put(f"db/a/{number}", b"abc")
        assert await store.delete_many([]) == {}
        assert await store.delete_many(["db/a/0", "db/a/3", "db/a/4"]) == {}
        assert await keys(store, "db/") == ["db/a/1", "db/a/2"]
        problems = await store.delete_many(["db/a/1", "db/none/1"])
        for key in problems:  # a store may not tell which one it did not find
            await store.delete(key)
        assert await keys(store, "db/") == ["db/a/2"]

    async def test_a_listing_is_recursive_sorted_and_by_whole_segments(self, store: ObjectStore) -> None:
        for key in ("db/m/2", "db/m/10", "db/m/sub/1", "db/mx/1", "db2/m/1", "db/.deleting"):
            await store.put(key, b"abc")
        assert await keys(store, "db/m/") == ["db/m/10", "db/m/2", "db/m/sub/1"]
        assert await keys(store, "db/") == ["db/.deleting", "db/m/10", "db/m/2", "db/m/sub/1", "db/mx/1"]
        listed = (await store.list("db2/"))[0]
        meta = await head(store, "db2/m/1")
        assert (listed.size, listed.etag) == (3, meta.etag)
        assert abs(listed.last_modified_ms - meta.last_modified_ms) < 1000

    async def test_a_listing_longer_than_a_page(self, store: ObjectStore) -> None:
        limiter = anyio.CapacityLimiter(16)

        async def put(number: int) -> None:
            async with limiter:
                await store.put(f"db/{number:05}", b"")

        async with anyio.create_task_group() as tasks:
            for number in range(1050):
                tasks.start_soon(put, number)
        assert await keys(store, "db/") == [f"db/{number:05}" for number in range(1050)]

    async def test_deletes_are_idempotent_and_leave_neighbours(self, store: ObjectStore) -> None:
        await store.put("db/m/1", b"")
        await store.put("db/m/2", b"")
        await store.delete("db/m/1")
        await store.delete("db/m/1")
        assert await keys(store, "db/") == ["db/m/2"]

    async def test_attributes_survive_where_there_are_any(self, store: ObjectStore) -> None:
        if not store.supports_attributes:
            pytest.skip("the store keeps no attributes")
        await store.put("db/a", b"1", mode=CREATE, attributes={"slatedbputid": "01ABC", "writerepoch": "7"})
        assert (await head(store, "db/a")).attributes == {"slatedbputid": "01ABC", "writerepoch": "7"}
        await store.put("db/a", b"2", attributes={"slatedbputid": "01DEF"})
        assert (await get(store, "db/a")).meta.attributes == {"slatedbputid": "01DEF"}

    async def test_a_copy_is_equal_and_overwrites(self, store: ObjectStore) -> None:
        await store.put("db/a", b"1")
        await store.put("db/b", b"old")
        await store.copy("db/a", "db/b")
        assert await read(store, "db/b") == b"1"
        assert await read(store, "db/a") == b"1"

    @pytest.mark.parametrize("sizes", [[], [5], [3_000_000] * 7], ids=["empty", "small", "multipart"])
    async def test_a_stream_becomes_an_object(self, store: ObjectStore, sizes: list[int]) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for number, size in enumerate(sizes):
                yield bytes([number]) * size

        await store.put_stream("db/a", parts())
        assert await read(store, "db/a") == b"".join([part async for part in parts()])

    @pytest.mark.parametrize("sizes", [[5], [3_000_000] * 7], ids=["small", "multipart"])
    async def test_a_broken_stream_leaves_nothing(self, store: ObjectStore, sizes: list[int]) -> None:
        class BrokenError(Exception):
            pass

        async def parts() -> AsyncIterator[bytes]:
            for number, size in enumerate(sizes):
                yield bytes([number]) * size
            raise BrokenError

        with pytest.raises(BrokenError):
            await store.put_stream("db/a", parts())
        assert await store.get("db/a") is None
        assert await store.list("db/") == []

    async def test_a_cancelled_stream_leaves_nothing(self, store: ObjectStore) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"x" * 9_000_000
            await anyio.sleep_forever()

        with anyio.move_on_after(0.3) as scope:
            await store.put_stream("db/a", parts())
        assert scope.cancelled_caught
        assert await store.list("db/") == []

    async def test_many_readers_at_once(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 1024
        await store.put("db/a", data)
        seen: list[bool] = []

        async def one(start: int) -> None:
            part = await store.get_range("db/a", start, start + 4096)
            assert part is not None
            seen.append(bytes(part) == data[start : start + 4096])

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number * 1000)
        assert seen == [True] * 100
