"""Batches: what they take, what they hold, the rows of their commit, and two batches in order as one."""

import random
from collections.abc import Callable
from typing import Any

import pytest

import shale
from shale.core.ttl import ExpireAt
from shale.engine.write import batch as module
from shale.engine.write.batch import CommitRows, WriteBatch, checked_key, checked_value, require_batch
from shale.errors import IncompatibleMergeTtls, InvalidRequestError, MergeOperatorMissing, WrongType
from shale.merge_operators import concatenate
from shale.store.memory import MemoryStore
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def do_some(rng: random.Random, *batches: WriteBatch) -> None:
    for _ in range(rng.randrange(6)):
        kind, key, value = rng.choice("ppdm"), rng.choice((b"a", b"b", b"c")), b"%d" % rng.randrange(100)
        ttl = rng.choice((None, None, 1000))
        for batch in batches:
            if kind == "p":
                batch.put(key, value, ttl=ttl)
            elif kind == "m":
                batch.merge(key, value)
            else:
                batch.delete(key)


@pytest.mark.parametrize("seed", range(200))
def test_it_is_all_of_them_in_a_row(seed: int) -> None:
    rng = random.Random(seed)
    first, second, whole = WriteBatch(), WriteBatch(), WriteBatch()
    do_some(rng, first, whole)
    do_some(rng, second, whole)
    before = {key: second.versions(key) for key in second}
    first.extend(second)
    assert {key: first.versions(key) for key in first} == {key: whole.versions(key) for key in whole}
    assert first.has_merges == whole.has_merges
    try:
        rows = whole.commit_rows(None, concatenate)
    except shale.errors.IncompatibleMergeTtls:
        with pytest.raises(shale.errors.IncompatibleMergeTtls):
            first.commit_rows(None, concatenate)
    else:
        assert first.commit_rows(None, concatenate) == rows
    first.put(b"a", b"later")
    first.merge(b"b", b"later")
    assert {key: second.versions(key) for key in second} == before


def test_a_key_that_is_too_long_here_adds_nothing() -> None:
    short, long = WriteBatch(max_key_bytes=3), WriteBatch()
    long.put(b"a", b"1")
    long.put(b"four", b"1")
    with pytest.raises(InvalidRequestError):
        short.extend(long)
    assert len(short) == 0


async def test_a_batch_that_merged_needs_an_operator_even_if_no_operand_is_left() -> None:
    async with shale.Db.open("db", store=MemoryStore()) as db:
        for replace in (lambda batch: batch.put(b"k", b"2"), lambda batch: batch.delete(b"k")):
            batch, outer = WriteBatch(), WriteBatch()
            batch.merge(b"k", b"1")
            replace(batch)
            outer.extend(batch)
            for each in (batch, outer):
                with pytest.raises(MergeOperatorMissing):
                    await db.write(each)
            async with db.transaction() as transaction:
                with pytest.raises(MergeOperatorMissing):
                    transaction.write(batch)
            batch.clear()
            batch.put(b"k", b"3")
            await db.write(batch)
    async with shale.Db.open("other", store=MemoryStore(), merge_operator="concatenate") as db:
        batch = WriteBatch()
        batch.merge(b"k", b"1")
        batch.put(b"k", b"2")
        await db.write(batch)
        assert await db.get(b"k") == b"2"


async def test_a_transaction_takes_the_same_batch_again_after_a_conflict() -> None:
    batch = WriteBatch()
    batch.put(b"k", b"mine")
    batch.delete(b"gone")
    async with shale.Db.open("db", store=MemoryStore()) as db:
        await db.put(b"gone", b"x")
        late = await db.transaction()
        late.write(batch)
        assert await late.get(b"k") == b"mine"
        await db.put(b"k", b"theirs")
        with pytest.raises(shale.errors.TransactionConflict):
            await late.commit()
        async with db.transaction() as again:
            again.write(batch)
        assert [await db.get(key) for key in (b"k", b"gone")] == [b"mine", None]
        merges = WriteBatch()
        merges.merge(b"k", b"1")
        async with db.transaction() as without:
            with pytest.raises(MergeOperatorMissing):
                without.write(merges)


@pytest.mark.parametrize("key", [b"a", b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_a_key_becomes_bytes(key: Any) -> None:
    checked = checked_key(key, 3)
    assert type(checked) is bytes
    assert checked == bytes(key)


@pytest.mark.parametrize("key", [b"", b"four", bytearray(), bytearray(b"four")])
def test_a_key_has_at_least_one_byte_and_at_most_as_many_as_allowed(key: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"key of {len(key)} bytes: must be between 1 and 3"):
        checked_key(key, 3)
    batch = WriteBatch(max_key_bytes=3)
    for call in (lambda: batch.put(key, b""), lambda: batch.delete(key), lambda: batch.merge(key, b"")):
        with pytest.raises(InvalidRequestError, match="must be between 1 and 3"):
            call()
    with pytest.raises(InvalidRequestError, match="must be between 1 and 3"):
        batch.put_many([b"a", key], [b"1", b"2"])
    batch = WriteBatch(max_key_bytes=3)
    with pytest.raises(InvalidRequestError, match="must be between 1 and 3"):
        batch.put_many([key], [b"1"])
    assert len(batch) == 0


@pytest.mark.parametrize("key", [3, "k", None, ["k"]])
def test_a_key_that_is_no_bytes_is_refused(key: Any) -> None:
    batch = WriteBatch()
    for call in (
        lambda: batch.put(key, b""),
        lambda: batch.put(b"k", key),
        lambda: batch.delete(key),
        lambda: batch.merge(b"k", key),
    ):
        with pytest.raises(WrongType, match="must be bytes-like"):
            call()
    assert len(batch) == 0


def test_the_longest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUE_BYTES", 4)
    monkeypatch.setattr(module, "LONG_BYTES", 4)
    batch = WriteBatch()
    assert checked_value(bytearray(b"1234")) == b"1234"
    batch.put(b"k", bytearray(b"1234"))
    batch.put_many([b"l", b"m"], [b"1234", b""])
    batch.merge(b"n", b"1234")
    for call in (
        lambda: checked_value(b"12345"),
        lambda: batch.put(b"k", bytearray(b"12345")),
        lambda: batch.put_many([b"k", b"l"], [b"1", b"12345"]),
        lambda: WriteBatch().put_many([b"k", b"l"], [b"1", b"12345"]),
        lambda: batch.merge(b"k", b"12345"),
    ):
        with pytest.raises(InvalidRequestError, match="value of 5 bytes: at most 4"):
            call()


async def test_a_write_that_is_awaited_says_so_whatever_it_is() -> None:
    batch = WriteBatch()
    for call in (
        lambda: batch.put(b"k", b"v"),
        lambda: batch.put(b"k", b"v", ttl=5),
        lambda: batch.delete(b"k"),
        lambda: batch.merge(b"k", b"v"),
        lambda: batch.put(bytearray(b"k"), b"v"),
    ):
        with pytest.raises(WrongType, match="a write of a batch was awaited"):
            await call()


def test_what_is_no_batch_is_refused() -> None:
    batch = WriteBatch()
    assert require_batch(batch) is batch
    with pytest.raises(WrongType, match="a batch was wanted, not dict"):
        require_batch({b"k": b"v"})  # type: ignore[arg-type]


def batch_with(*changes: Callable[[WriteBatch], object]) -> WriteBatch:
    batch = WriteBatch()
    for change in changes:
        change(batch)
    return batch


def put(key: bytes, value: bytes, **options: Any) -> Callable[[WriteBatch], object]:
    return lambda batch: batch.put(key, value, **options)


def merge(key: bytes, value: bytes, **options: Any) -> Callable[[WriteBatch], object]:
    return lambda batch: batch.merge(key, value, **options)


def delete(key: bytes) -> Callable[[WriteBatch], object]:
    return lambda batch: batch.delete(key)


def put_many(*pairs: tuple[bytes, bytes]) -> Callable[[WriteBatch], object]:
    return lambda batch: batch.put_many([key for key, _ in pairs], [value for _, value in pairs])


def clear(batch: WriteBatch) -> None:
    batch.clear()


SIZES: list[tuple[list[Callable[[WriteBatch], object]], set[bytes], int]] = [
    ([], set(), 0),
    ([put(b"k", b"12345")], {b"k"}, 6),
    ([put(b"k", b"12345"), put(b"k", b"1")], {b"k"}, 2),
    ([put(b"k", b"12345"), delete(b"k")], {b"k"}, 1),
    ([delete(b"abc")], {b"abc"}, 3),
    ([merge(b"k", b"12"), merge(b"k", b"345")], {b"k"}, 7),
    ([put(b"k", b"1"), merge(b"k", b"23"), merge(b"ll", b"4")], {b"k", b"ll"}, 8),
    ([merge(b"k", b"23"), put(b"k", b"1")], {b"k"}, 2),
    ([merge(b"k", b"23"), delete(b"k")], {b"k"}, 1),
    ([put_many((b"a", b"1"), (b"b", b"22"), (b"a", b"333"))], {b"a", b"b"}, 7),
    ([put_many()], set(), 0),
    ([merge(b"a", b"1"), put_many((b"a", b"22"))], {b"a"}, 3),
    ([put(b"a", b"1"), merge(b"b", b"2"), clear], set(), 0),
]


@pytest.mark.parametrize(("changes", "keys", "size_bytes"), SIZES)
def test_keys_and_size(changes: list[Callable[[WriteBatch], object]], keys: set[bytes], size_bytes: int) -> None:
    batch = batch_with(*changes)
    assert (len(batch), set(batch), batch.size_bytes) == (len(keys), keys, size_bytes)
    assert sorted(batch) == sorted(keys), "each key once"
    assert all(key in batch for key in keys)
    assert b"other" not in batch


def test_a_batch_shows_its_keys_and_size() -> None:
    assert repr(batch_with(put(b"k", b"12345"), delete(b"l"))) == "<shale.WriteBatch keys=2 size=7 B>"


def test_a_cleared_batch_is_as_new() -> None:
    batch = batch_with(put(b"a", b"1", ttl=5), delete(b"b"), merge(b"c", b"2"), clear)
    assert not batch.has_merges
    assert not batch.has_deletes
    batch.put(b"a", b"3")
    assert batch.commit_rows(None) == CommitRows([b"a"], [b"3"], bytearray([FLAG_CREATE_TS]), [])


C, E, M, T = FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE
COMMITS: list[tuple[list[Callable[[WriteBatch], object]], int | None, list[tuple[bytes, bytes, int, Any]]]] = [
    ([put(b"b", b"2"), put(b"a", b"1")], None, [(b"a", b"1", C, None), (b"b", b"2", C, None)]),
    ([put(b"a", b"1"), put(b"b", b"2")], 9, [(b"a", b"1", C | E, 9), (b"b", b"2", C | E, 9)]),
    ([put(b"b", b"2"), delete(b"a")], None, [(b"a", b"", C | T, None), (b"b", b"2", C, None)]),
    ([put(b"b", b"2"), delete(b"a")], 9, [(b"a", b"", C | T, None), (b"b", b"2", C | E, 9)]),
    ([put(b"a", b""), delete(b"b")], None, [(b"a", b"", C, None), (b"b", b"", C | T, None)]),
    ([put(b"b", b"", ttl=5), put(b"a", b"")], None, [(b"a", b"", C, None), (b"b", b"", C | E, 5000)]),
    ([put(b"a", b"", ttl=5), put(b"b", b"")], 9, [(b"a", b"", C | E, 5000), (b"b", b"", C | E, 9)]),
    ([put(b"a", b"", expire_at=77)], 9, [(b"a", b"", C | E, ExpireAt(77))]),
    ([put(b"a", b"", ttl=shale.NEVER)], 9, [(b"a", b"", C, None)]),
    ([put(b"a", b"", ttl=5), put(b"a", b"1")], 9, [(b"a", b"1", C | E, 9)]),
    ([put(b"a", b"", ttl=5), delete(b"a")], 9, [(b"a", b"", C | T, None)]),
    (
        [put(b"a", b"", ttl=5), put_many((b"a", b"1"), (b"b", b"2"))],
        None,
        [(b"a", b"1", C, None), (b"b", b"2", C, None)],
    ),
    ([merge(b"a", b"1"), put_many((b"a", b"2"))], None, [(b"a", b"2", C, None)]),
    ([merge(b"a", b"1"), merge(b"a", b"2")], None, [(b"a", b"12", C | M, None)]),
    ([merge(b"a", b"1"), merge(b"a", b"2")], 9, [(b"a", b"12", C | M | E, 9)]),
    (
        [put(b"b", b"0"), merge(b"a", b"1"), merge(b"b", b"2")],
        None,
        [(b"a", b"1", C | M, None), (b"b", b"02", C, None)],
    ),
    ([delete(b"a"), merge(b"a", b"1")], None, [(b"a", b"1", C, None)]),
    ([put(b"a", b"0", ttl=5), merge(b"a", b"1", ttl=5)], 9, [(b"a", b"01", C | E, 5000)]),
    (
        [put(b"a", b"0"), merge(b"a", b"1"), merge(b"b", b"2", ttl=5)],
        9,
        [(b"a", b"01", C | E, 9), (b"b", b"2", C | M | E, 5000)],
    ),
    ([merge(b"a", b"1", expire_at=77)], 9, [(b"a", b"1", C | M | E, ExpireAt(77))]),
    ([merge(b"a", b"1", ttl=shale.NEVER)], 9, [(b"a", b"1", C | M, None)]),
    (
        [merge(b"a", b"1", ttl=0.009), put(b"b", b"2"), merge(b"a", b"2")],
        9,
        [(b"a", b"12", C | M | E, 9), (b"b", b"2", C | E, 9)],
    ),
]


@pytest.mark.parametrize(("changes", "default_ttl_ms", "expected"), COMMITS)
def test_the_rows_of_a_commit(
    changes: list[Callable[[WriteBatch], object]],
    default_ttl_ms: int | None,
    expected: list[tuple[bytes, bytes, int, Any]],
) -> None:
    keys, values, flags, lifetimes = batch_with(*changes).commit_rows(default_ttl_ms, concatenate)
    own = dict(lifetimes)
    assert len(own) == len(lifetimes)
    assert list(zip(keys, values, flags, map(own.get, range(len(keys))), strict=True)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        [merge(b"a", b"1", ttl=5), merge(b"a", b"2", ttl=6)],
        [merge(b"a", b"1"), merge(b"a", b"2", ttl=6)],
        [merge(b"a", b"1", ttl=shale.NEVER), merge(b"a", b"2")],
        [put(b"a", b"1", ttl=5), merge(b"a", b"2")],
        [put(b"a", b"1"), merge(b"a", b"2", expire_at=5)],
        [delete(b"a"), merge(b"a", b"2")],
    ],
)
def test_writes_of_one_key_with_several_lifetimes_are_not_folded(
    changes: list[Callable[[WriteBatch], object]],
) -> None:
    batch = batch_with(*changes)
    with pytest.raises(IncompatibleMergeTtls, match="several lifetimes"):
        batch.commit_rows(9, concatenate)
    with pytest.raises(MergeOperatorMissing):
        batch.commit_rows(9, None)


def test_the_versions_of_a_key_in_a_batch_are_newest_first_and_expire_from_now() -> None:
    batch = batch_with(
        put(b"a", b"0", ttl=5), merge(b"a", b"1"), merge(b"a", b"2", expire_at=77), delete(b"b"), merge(b"b", b"3"),
        put(b"c", b"4"), merge(b"d", b"5", ttl=shale.NEVER),
    )  # fmt: skip
    assert {key: batch.versions(key, 9, 100) for key in (b"a", b"b", b"c", b"d", b"e")} == {
        b"a": [
            Entry(b"a", b"2", 0, M | E, 0, 77),
            Entry(b"a", b"1", 0, M | E, 0, 109),
            Entry(b"a", b"0", 0, E, 0, 5100),
        ],
        b"b": [Entry(b"b", b"3", 0, M | E, 0, 109), Entry(b"b", b"", 0, T)],
        b"c": [Entry(b"c", b"4", 0, E, 0, 109)],
        b"d": [Entry(b"d", b"5", 0, M)],
        b"e": [],
    }
    assert batch.versions(b"c", None, 100) == [Entry(b"c", b"4", 0, 0)]
    assert batch.versions(b"a", 9) == [Entry(b"a", b"2", 0, M), Entry(b"a", b"1", 0, M), Entry(b"a", b"0", 0, 0)]


def test_an_extended_batch_keeps_to_the_rules_of_both() -> None:
    """Later writes of a key replace lifetimes and operands of earlier ones, whichever batch they are in."""
    first, second = batch_with(put(b"a", b"1", ttl=5), merge(b"b", b"2")), batch_with(put(b"a", b"3"), delete(b"b"))
    first.extend(second)
    assert first.has_deletes
    assert first.has_merges
    rows = first.commit_rows(None, concatenate)
    assert rows == CommitRows([b"a", b"b"], [b"3", b""], bytearray([C, C | T]), [])
    plain, own = batch_with(put(b"a", b"1")), batch_with(put(b"b", b"2", ttl=5))
    plain.extend(own)
    plain.put(b"b", b"3")
    assert plain.commit_rows(None) == CommitRows([b"a", b"b"], [b"1", b"3"], bytearray([C, C]), [])
    assert own.commit_rows(None).lifetimes == [(0, 5000)]


def test_a_batch_of_longer_keys_is_taken_if_its_keys_fit() -> None:
    short, long = WriteBatch(max_key_bytes=3), batch_with(put(b"abc", b"1"), merge(b"d", b"2"))
    short.extend(long)
    assert set(short) == {b"abc", b"d"}
    same = WriteBatch(max_key_bytes=3)
    same.put(b"xyz", b"1")
    short.extend(same)
    assert set(short) == {b"abc", b"d", b"xyz"}


def test_lists_of_different_lengths_are_refused() -> None:
    for batch in (WriteBatch(), batch_with(merge(b"z", b""))):
        with pytest.raises(ValueError, match="shorter"):
            batch.put_many([b"a", b"b"], [b"1"])
