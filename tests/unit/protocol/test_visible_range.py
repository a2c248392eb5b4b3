"""The range of keys that a clone shows."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from shale.core.bytes_like import BytesLike
from shale.errors import AlreadyExists, CorruptionError, InvalidDbState, Precondition, UnavailableError
from shale.format.names import destroyed_key, visible_range_key
from shale.protocol.visible_range import (
    decode_visible_range,
    encode_visible_range,
    read_visible_range,
    require_usable,
    write_visible_range,
)
from shale.store.memory import MemoryStore
from shale.store.port import OVERWRITE, ETag, GetResult, PutMode
from shale.types import EVERYTHING, UNBOUNDED, KeyRange, excluded, included
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run

KEYS = KeyRange.half_open(b"a\xff", b"m")
OTHER_KEYS = KeyRange.half_open(b"b", b"c")
ATTEMPT = UUID(int=7)


class ByContent(MemoryStore):
    """A store whose etags tell the content only, as those of S3, to which puts come once more when a test says so."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.puts: list[tuple[str, bytes, PutMode]] = []

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        assert isinstance(data, bytes)
        self.puts.append((key, data, mode))
        return await super().put(key, data, mode=mode, attributes=attributes)

    def write(self, key: str, data: bytes, attributes: Mapping[str, str] | None) -> ETag:
        super().write(key, data, attributes)
        etag = ETag(hashlib.md5(data).hexdigest())
        self.objects[key] = replace(self.objects[key], meta=replace(self.objects[key].meta, etag=etag))
        return etag

    async def repeat_puts(self) -> None:
        for key, data, mode in self.puts:
            with contextlib.suppress(AlreadyExists, Precondition):
                await super().put(key, data, mode=mode)


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
        await write_visible_range(store, "db", KEYS, ATTEMPT)
        assert await require_usable(store, "db", None) == KEYS
        assert await require_usable(store, "db", KeyRange.half_open(b"x", None)) == KeyRange.half_open(b"x", None)
        assert await require_usable(store, "db", EVERYTHING) is None
        await write_visible_range(store, "db", None, ATTEMPT)
        assert await read_visible_range(store, "db") is None
        assert await require_usable(store, "db", None) is None
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
    attempt = b', "attempt": "00000000-0000-0000-0000-000000000007"}'
    assert encode_visible_range(keys, ATTEMPT) == stored[:-1] + attempt
    assert decode_visible_range(stored[:-1] + attempt, path="x") == keys
    assert decode_visible_range(memoryview(stored[:-1] + b', "later": 1}'), path="x") == keys


def test_a_range_of_another_format_or_without_a_range_is_told_apart() -> None:
    with pytest.raises(CorruptionError, match="format 2 of the visible range is not known"):
        decode_visible_range(b'{"format": 2, "start": null, "end": null}', path="x")
    with pytest.raises(CorruptionError, match=f"the visible range is b'{'x' * 64}'"):
        decode_visible_range(b"x" * 100, path="x")


def test_a_late_duplicate_of_an_earlier_attempt_does_not_change_the_range() -> None:
    async def main() -> None:
        store = ByContent()
        for number, keys in enumerate((KEYS, OTHER_KEYS, KEYS, None, KEYS, None), 1):
            await write_visible_range(store, "db", keys, UUID(int=number))
            await store.repeat_puts()
            assert await read_visible_range(store, "db") == keys
            assert len(store.puts) == number
        await write_visible_range(store, "db", None, UUID(int=6))
        assert len(store.puts) == 6

    run(main)


def test_a_put_that_waits_while_the_range_is_stored_again_does_not_change_it() -> None:
    async def main() -> None:
        store, later = ByContent(), ByContent()
        await write_visible_range(store, "db", KEYS, UUID(int=1))
        later.objects |= store.objects
        await write_visible_range(later, "db", OTHER_KEYS, UUID(int=2))
        await write_visible_range(store, "db", KEYS, UUID(int=3))
        store.puts = later.puts
        await store.repeat_puts()
        assert await read_visible_range(store, "db") == KEYS

    run(main)


def test_an_attempt_whose_only_put_is_late_does_not_limit_a_clone_of_all_keys() -> None:
    async def main() -> None:
        store, earlier = ByContent(), ByContent()
        await write_visible_range(earlier, "db", KEYS, UUID(int=1))
        await write_visible_range(store, "db", None, ATTEMPT)
        store.puts = earlier.puts
        await store.repeat_puts()
        assert await require_usable(store, "db", None) is None

    run(main)


def test_a_range_that_another_attempt_stores_meanwhile_is_replaced() -> None:
    class Overtaken(ByContent):
        others: Sequence[KeyRange | None] = (KEYS, None)

        async def get(self, key: str) -> GetResult | None:
            found = await super().get(key)
            if self.others:
                keys, *self.others = self.others
                await super().put(key, encode_visible_range(keys or EVERYTHING, UUID(int=len(self.others))))
            return found

    async def main() -> None:
        store = Overtaken()
        await write_visible_range(store, "db", OTHER_KEYS, ATTEMPT)
        assert await read_visible_range(store, "db") == OTHER_KEYS
        store.others = (KEYS, None) * 3
        with pytest.raises(UnavailableError, match="db/gc/visible_range is changed by other processes"):
            await write_visible_range(store, "db", KeyRange.half_open(b"x", None), UUID(int=8))

    run(main)


def test_a_damaged_range_is_replaced() -> None:
    async def main() -> None:
        store = ByContent()
        await store.put(visible_range_key("db"), b"damaged")
        await write_visible_range(store, "db", KEYS, ATTEMPT)
        assert await read_visible_range(store, "db") == KEYS

    run(main)
