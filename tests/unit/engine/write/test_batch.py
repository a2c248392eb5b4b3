"""Two batches in order equal one batch of all their operations."""

import random

import pytest

import shale
from shale.engine.write.batch import WriteBatch
from shale.errors import InvalidRequestError, MergeOperatorMissing
from shale.merge_operators import concatenate
from shale.store.memory import MemoryStore

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
