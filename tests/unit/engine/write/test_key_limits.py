"""Handles that are limited to a range of keys (docs/reference/protocol.md 11.1)."""

import anyio
import pytest

import shale
from shale.engine.write.key_limits import require_all_inside, require_overlap, require_some_inside
from shale.errors import InvalidRequestError
from shale.store.memory import MemoryStore
from shale.types import KeyRange

LIMITS = KeyRange.half_open(b"b", b"d")


def test_a_writer_keeps_to_its_range() -> None:
    async def main() -> None:
        async with shale.Db.open("db", store=MemoryStore(), enforce_visible_range=LIMITS) as db:
            await db.put(b"b", b"1")
            for key in (b"a", b"d"):
                with pytest.raises(InvalidRequestError, match="outside"):
                    await db.put(key, b"1")
                with pytest.raises(InvalidRequestError, match="outside"):
                    await db.delete(key)
                with pytest.raises(InvalidRequestError, match="outside"):
                    await db.get(key)
                with pytest.raises(InvalidRequestError, match="outside"):
                    await db.get_row(key)
            batch = shale.WriteBatch()
            batch.put(b"c", b"2")
            batch.put(b"d", b"2")
            with pytest.raises(InvalidRequestError, match="outside"):
                await db.write(batch)
            for _ in range(3):  # also without a pause, in the same millisecond
                await db.put(b"c", b"3")
                with pytest.raises(InvalidRequestError, match="outside"):
                    await db.put(b"e", b"3")
            assert await db.get(b"b") == b"1"
            assert await db.get_many([b"a", b"b"]) == [None, b"1"]
            with pytest.raises(InvalidRequestError, match="outside"):
                await db.get_many([b"a", b"d"])
            assert await db.get_many([]) == []
            assert [row.key async for row in db.scan(start=b"a", stop=b"z")] == [b"b", b"c"]
            assert [row.key async for row in db.scan(start=b"c", stop=b"c")] == []
            with pytest.raises(InvalidRequestError, match="outside"):
                db.scan(start=b"d")
            async with db.transaction() as transaction:
                with pytest.raises(InvalidRequestError, match="outside"):
                    await transaction.get(b"a")
            snapshot = await db.snapshot()
            with pytest.raises(InvalidRequestError, match="outside"):
                await snapshot.get(b"a")
            await snapshot.close()

    anyio.run(main)


def test_a_reader_keeps_to_its_range() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with shale.Db.open("db", store=store) as db:
            for key in (b"a", b"b", b"e"):
                await db.put(key, key)
        async with shale.DbReader.open("db", store=store, enforce_visible_range=LIMITS) as reader:
            assert await reader.get(b"b") == b"b"
            with pytest.raises(InvalidRequestError, match="outside"):
                await reader.get(b"a")
            with pytest.raises(InvalidRequestError, match="outside"):
                reader.scan(prefix=b"e")
            snapshot = await reader.snapshot()
            with pytest.raises(InvalidRequestError, match="outside"):
                await snapshot.get(b"a")
            await snapshot.close()

    anyio.run(main)


@pytest.mark.parametrize(
    ("keys", "all_inside", "some_inside"),
    [
        ([], True, True),
        ([b"b"], True, True),
        ([b"b", b"c\xff"], True, True),
        ([b"a"], False, False),
        ([b"d"], False, False),
        ([b"c", b"a"], False, True),
        ([b"a", b"c"], False, True),
        ([b"a", b"d", b"e"], False, False),
    ],
)
def test_which_keys_are_refused(keys: list[bytes], *, all_inside: bool, some_inside: bool) -> None:
    for require, is_allowed in ((require_all_inside, all_inside), (require_some_inside, some_inside)):
        if is_allowed:
            require(LIMITS, keys)
        else:
            with pytest.raises(InvalidRequestError, match="lies outside"):
                require(LIMITS, keys)


def test_a_long_key_is_shown_in_part() -> None:
    for require in (require_all_inside, require_some_inside):
        with pytest.raises(InvalidRequestError, match=r"key b'a{64}' lies"):
            require(LIMITS, [b"a" * 65])


@pytest.mark.parametrize(
    ("start", "end", "is_allowed"),
    [
        (None, None, True),
        (None, b"b", False),
        (None, b"b\0", True),
        (b"d", None, False),
        (b"c\xff", b"z", True),
        (b"x", b"x", True),
        (b"x", b"y", False),
    ],
)
def test_which_scans_are_refused(start: bytes | None, end: bytes | None, *, is_allowed: bool) -> None:
    """A scan of no keys is allowed everywhere."""
    keys = KeyRange.half_open(start, end)
    if is_allowed:
        require_overlap(LIMITS, keys)
    else:
        with pytest.raises(InvalidRequestError, match="the scan lies outside"):
            require_overlap(LIMITS, keys)
