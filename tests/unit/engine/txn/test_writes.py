"""One rule: writes of a transaction may be awaited, and are recorded either way; those of a batch are never awaited."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

import shale
from shale import codecs
from shale.errors import InvalidRequestError, WrongType
from shale.store.memory import MemoryStore


def run(scenario: Callable[[shale.Db], Awaitable[None]]) -> None:
    async def with_db() -> None:
        async with shale.Db.open("db", store=MemoryStore(), merge_operator="concatenate") as db:
            await scenario(db)

    anyio.run(with_db)


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


@pytest.mark.parametrize("is_awaited", [True, False])
def test_writes_of_a_transaction_are_recorded_whether_awaited_or_not(is_awaited: bool) -> None:
    async def scenario(db: shale.Db) -> None:
        await db.put(b"d", b"")
        async with db.transaction() as tx:
            batch = tx.new_batch()
            batch.put(b"b", b"2")
            calls: list[Callable[[], Awaitable[None]]] = [
                lambda: tx.put(b"a", b"1"),
                lambda: tx.write(batch),
                lambda: tx.merge(b"a", b"x"),
                lambda: tx.delete(b"d"),
            ]
            for call in calls:
                recorded = call()
                if is_awaited:
                    await recorded
            assert await tx.get(b"a") == b"1x"
        assert await contents(db) == {b"a": b"1x", b"b": b"2"}

    run(scenario)


def test_an_awaited_write_lets_no_other_task_run() -> None:
    async def scenario(db: shale.Db) -> None:
        ran: list[str] = []

        async def other() -> None:
            ran.append("other")

        async with anyio.create_task_group() as tasks, db.transaction() as tx:
            tasks.start_soon(other)
            await tx.put(b"a", b"1")
            assert not ran

    run(scenario)


@pytest.mark.parametrize("write", ["put", "delete", "merge"])
def test_an_awaited_write_of_a_batch_is_refused(write: str) -> None:
    async def scenario(db: shale.Db) -> None:
        batch = db.new_batch()
        arguments = (b"k",) if write == "delete" else (b"k", b"v")
        with pytest.raises(WrongType, match="a write of a batch was awaited"):
            await getattr(batch, write)(*arguments)
        assert len(batch) == 1

    run(scenario)


def test_a_transaction_has_writable_mappings() -> None:
    async def scenario(db: shale.Db) -> None:
        names = db.mapping(codec=codecs.TEXT, key_codec=codecs.INT, prefix=b"n/")
        await names.update({1: "Ada", 2: "Bob"})
        async with db.transaction() as tx:
            inside = tx.mapping(codec=codecs.TEXT, key_codec=codecs.INT, prefix=b"n/")
            await inside.put(3, "Cy")
            inside.delete(1)
            await inside.update({4: "Di", 2: await inside.get(2) or ""})
            assert [item async for item in inside.items()] == [(2, "Bob"), (3, "Cy"), (4, "Di")]
            assert [number async for number, _ in names.items()] == [1, 2]
        assert [item async for item in names.items(start=3)] == [(3, "Cy"), (4, "Di")]

    run(scenario)


def test_a_mapping_records_all_values_or_none() -> None:
    async def scenario(db: shale.Db) -> None:
        async with db.transaction() as tx:
            inside = tx.mapping(codec=codecs.TEXT)
            with pytest.raises(InvalidRequestError, match="text is wanted"):
                inside.update({b"a": "1", b"b": 2})  # type: ignore[dict-item]
        assert await contents(db) == {}

    run(scenario)
