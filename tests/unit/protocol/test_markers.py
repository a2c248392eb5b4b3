"""Markers of destroyed databases: what they hold, and which of two processes sets their time."""

import json
from uuid import UUID

import pytest

from shale.errors import AlreadyExists, CorruptionError, InvalidDbState
from shale.format.names import deleting_key, destroyed_key
from shale.protocol.markers import (
    DestroyedMark,
    decode_destroyed_mark,
    encode_destroyed_mark,
    is_being_deleted,
    is_destroyed,
    put_destroyed_mark,
    read_destroyed_mark,
    require_not_destroyed,
)
from shale.store.memory import MemoryStore
from tests.unit.protocol.conftest import run

MARK = DestroyedMark(1_700_000_000, UUID(int=7))
FIELDS = {"destroyed_at_s": 5, "by": str(UUID(int=7)), "format": 1}


def test_a_marker_is_stored_as_one_json_object() -> None:
    assert json.loads(encode_destroyed_mark(MARK)) == {
        "destroyed_at_s": 1_700_000_000,
        "by": "00000000-0000-0000-0000-000000000007",
        "format": 1,
    }
    assert decode_destroyed_mark(encode_destroyed_mark(MARK), path="x") == MARK


@pytest.mark.parametrize("at_s", [0, 1, 2**40])
def test_times_that_a_marker_can_hold(at_s: int) -> None:
    data = json.dumps(FIELDS | {"destroyed_at_s": at_s, "later": "field"}).encode()
    assert decode_destroyed_mark(memoryview(data), path="x") == DestroyedMark(at_s, UUID(int=7))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the marker holds b''"),
        (b"x" * 100, f"the marker holds b'{'x' * 64}'"),
        (b"[]", "the marker holds"),
        (b"{}", "the marker holds"),
        (json.dumps(FIELDS | {"format": 2}).encode(), "format 2 of the marker is not known"),
        (json.dumps(FIELDS | {"by": 3}).encode(), "the marker holds"),
        (json.dumps(FIELDS | {"by": "another"}).encode(), "the marker holds"),
        (json.dumps(FIELDS | {"destroyed_at_s": -1}).encode(), "destroyed_at_s is -1"),
        (json.dumps(FIELDS | {"destroyed_at_s": True}).encode(), "destroyed_at_s is True"),
        (json.dumps(FIELDS | {"destroyed_at_s": 5.0}).encode(), "destroyed_at_s is 5.0"),
        (json.dumps(FIELDS | {"destroyed_at_s": "5"}).encode(), "destroyed_at_s is '5'"),
    ],
)
def test_a_marker_that_cannot_be_read_names_its_path(data: bytes, words: str) -> None:
    with pytest.raises(CorruptionError, match=words) as caught:
        decode_destroyed_mark(data, path="db/.destroyed")
    assert caught.value.path == "db/.destroyed"


def test_the_first_marker_keeps_its_time() -> None:
    async def main() -> None:
        store = MemoryStore()
        assert await read_destroyed_mark(store, "db") is None
        assert await put_destroyed_mark(store, "db", MARK) == MARK
        assert await put_destroyed_mark(store, "db", DestroyedMark(9, UUID(int=9))) == MARK
        assert await read_destroyed_mark(store, "db") == MARK

    run(main)


def test_a_marker_that_vanishes_while_it_is_written_is_an_error() -> None:
    class Vanishing(MemoryStore):
        async def put(self, key: str, *_args: object, **_options: object) -> None:  # type: ignore[override]
            raise AlreadyExists(key)

    async def main() -> None:
        with pytest.raises(InvalidDbState, match=f"{destroyed_key('db')} existed and is missing now"):
            await put_destroyed_mark(Vanishing(), "db", MARK)

    run(main)


@pytest.mark.parametrize(
    ("key", "destroyed", "being_deleted"),
    [("db/other", False, False), (destroyed_key("db"), True, False), (deleting_key("db"), True, True)],
)
def test_either_marker_destroys_and_one_of_them_tells_that_objects_are_deleted(
    key: str, destroyed: bool, being_deleted: bool
) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put(key, b"")
        assert await is_destroyed(store, "db") is destroyed
        assert await is_being_deleted(store, "db") is being_deleted

    run(main)


@pytest.mark.parametrize(("root", "shown"), [("db", "at db is destroyed"), ("", "at / is destroyed")])
def test_a_destroyed_database_is_named(root: str, shown: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put(destroyed_key(root), b"")
        with pytest.raises(InvalidDbState, match=shown):
            await require_not_destroyed(store, root)

    run(main)
