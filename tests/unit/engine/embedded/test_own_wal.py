"""Which WAL files a writer's collector takes for the writer's own, and deletes early."""

from collections.abc import Callable

import anyio
import pytest

import shale
from shale.engine.embedded import start
from shale.engine.embedded.context import EmbeddedContext
from shale.engine.embedded.services import EmbeddedServices
from shale.errors import FencedError
from shale.store.memory import MemoryStore
from shale.types import Epoch, Manifest, WalId

IDS = range(1, 20)


def owned(is_own: Callable[[int], bool]) -> list[int]:
    return [wal_id for wal_id in IDS if is_own(wal_id)]


def test_only_files_after_the_fence_that_are_flushed() -> None:
    newest = Manifest(writer_epoch=Epoch(2), replay_after_wal_id=WalId(6))
    assert owned(start.own_wal(lambda: newest, 2, 3)) == [4, 5, 6]


def test_nothing_while_the_known_manifest_is_that_of_another_writer() -> None:
    newest = Manifest(writer_epoch=Epoch(1), replay_after_wal_id=WalId(2))
    is_own = start.own_wal(lambda: newest, 1, 1)
    assert owned(is_own) == [2]
    newest = Manifest(writer_epoch=Epoch(2), replay_after_wal_id=WalId(6))
    assert owned(is_own) == []


@pytest.mark.slow
def test_a_replaced_writer_owns_no_file_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[EmbeddedContext] = []

    class Recorded(EmbeddedServices):
        def __init__(self, context: EmbeddedContext, *arguments: object) -> None:
            super().__init__(context, *arguments)  # type: ignore[arg-type]
            contexts.append(context)

    async def flush_row(db: shale.Db, key: bytes) -> None:
        await db.put(key, b"v")
        await db.flush("wal")
        await db.flush("memtable")

    async def scenario() -> None:
        store = MemoryStore()
        old = await shale.Db.open("db", store=store, gc=True)
        await flush_row(old, b"a")
        async with shale.Db.open("db", store=store, gc=True) as new:
            for number in range(3):
                await flush_row(new, b"%d" % number)
            of_old, of_new = (owned(context.is_own_wal) for context in contexts)
            assert (of_old, of_new) == ([2], [4, 5, 6]), "1 and 3 are fences"
            with pytest.raises(FencedError):
                await old.refresh()
            assert owned(contexts[0].is_own_wal) == [2], "also after it has learned that it was replaced"
        with pytest.raises(FencedError):
            await old.close()

    monkeypatch.setattr(start, "EmbeddedServices", Recorded)
    anyio.run(scenario)
