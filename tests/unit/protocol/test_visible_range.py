"""The range of keys that a projected clone shows."""

import pytest

from shale.errors import CorruptionError, InvalidDbState
from shale.format.names import destroyed_key, visible_range_key
from shale.protocol.visible_range import (
    decode_visible_range,
    encode_visible_range,
    read_visible_range,
    require_usable,
    write_visible_range,
)
from shale.store.memory import MemoryStore
from shale.types import EVERYTHING, UNBOUNDED, KeyRange, excluded, included
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run

KEYS = KeyRange.half_open(b"a\xff", b"m")


@pytest.mark.parametrize(
    "keys", [KEYS, EVERYTHING, KeyRange(excluded(b""), included(b"\0")), KeyRange(UNBOUNDED, excluded(b"z"))], ids=str
)
def test_what_is_stored_is_read(keys: KeyRange) -> None:
    assert decode_visible_range(encode_visible_range(keys), path="x") == keys


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "start": null, "end": "a"}'])
def test_anything_else_is_refused_by_its_path(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="db/gc/visible_range"):
        decode_visible_range(data, path="db/gc/visible_range")


def test_a_handle_keeps_to_the_given_range_or_to_the_stored_one() -> None:
    async def main() -> None:
        store = MemoryStore(ManualClock())
        assert await require_usable(store, "db", None) is None
        await write_visible_range(store, "db", KEYS)
        assert await store.head(visible_range_key("db")) is not None
        assert await require_usable(store, "db", None) == KEYS
        assert await require_usable(store, "db", KeyRange.half_open(b"x", None)) == KeyRange.half_open(b"x", None)
        assert await require_usable(store, "db", EVERYTHING) is None
        await write_visible_range(store, "db", None)
        assert await read_visible_range(store, "db") is None
        await store.put(destroyed_key("db"), b"{}")
        for given in (None, KEYS):
            with pytest.raises(InvalidDbState, match="destroyed"):
                await require_usable(store, "db", given)

    run(main)


@pytest.mark.parametrize(
    ("keys", "stored"),
    [
        (EVERYTHING, b'{"format": 1, "start": null, "end": null}'),
        (
            KeyRange(excluded(b"a"), included(b"\xff")),
            b'{"format": 1, "start": {"key": "61", "included": false}, "end": {"key": "ff", "included": true}}',
        ),
    ],
    ids=str,
)
def test_the_stored_form(keys: KeyRange, stored: bytes) -> None:
    assert encode_visible_range(keys) == stored
    assert decode_visible_range(memoryview(stored[:-1] + b', "later": 1}'), path="x") == keys


def test_a_range_of_another_format_or_without_a_range_is_told_apart() -> None:
    with pytest.raises(CorruptionError, match="format 2 of the visible range is not known"):
        decode_visible_range(b'{"format": 2, "start": null, "end": null}', path="x")
    with pytest.raises(CorruptionError, match=f"the visible range is b'{'x' * 64}'"):
        decode_visible_range(b"x" * 100, path="x")


def test_the_range_of_an_earlier_attempt_is_removed() -> None:
    class Deletions(MemoryStore):
        deleted = 0

        async def delete(self, key: str) -> None:
            self.deleted += 1
            await super().delete(key)

    async def main() -> None:
        store = Deletions(ManualClock())
        await write_visible_range(store, "db", None)
        assert store.deleted == 0
        await write_visible_range(store, "db", KEYS)
        await write_visible_range(store, "db", KeyRange.half_open(b"b", b"c"))
        assert await read_visible_range(store, "db") == KeyRange.half_open(b"b", b"c")
        await write_visible_range(store, "db", None)
        assert (store.deleted, store.objects) == (1, {})

    run(main)
