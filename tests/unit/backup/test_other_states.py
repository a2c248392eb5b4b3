"""A restore that was interrupted, and is followed by one of another state: no row of the first one is left."""

from typing import TYPE_CHECKING

import anyio
import pytest

import shale
from shale.errors import InvalidDbState
from shale.store.memory import MemoryStore
from shale.testing.wal_backends import MemoryWalBackend
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

if TYPE_CHECKING:
    from shale.backup.document import Backup

KEYS = shale.AesGcm({"2026-11": b"k" * 32})


class Place:
    """A backup with one WAL file after its SSTs, and one with the same SSTs and a second WAL file."""

    def __init__(self, *, is_encrypted: bool = False, has_backend: bool = False) -> None:
        self.backups = MemoryStore(url="memory://backups/")
        self.found: tuple[Backup, ...] = ()
        self.seqs: list[int] = []
        self._options = {"block_transformer": KEYS} if is_encrypted else {}
        self._has_backend = has_backend

    async def write(self) -> None:
        """Write the database and its backups."""
        main, options = MemoryStore(), self.options()
        await write(main, {"a": "flushed"}, **options)
        self.seqs.append(await write(main, {"b": "1", "c": "1"}, flush="wal", **options))
        async with admin(main, **options) as made:
            place = made.backups(store=self.backups, path="b")
            await place.create()
            self.seqs.append(await write(main, {"b": "2", "d": "2"}, flush="wal", **options))
            await place.create()
            self.found = await place.list()

    def options(self) -> dict[str, object]:
        """Return the options of the processes of a new database."""
        return {**self._options, "wal": MemoryWalBackend()} if self._has_backend else dict(self._options)

    async def restore(self, store: object, number: int, to_seq: int | None, options: dict[str, object]) -> None:
        """Restore a backup."""
        async with admin(store, **options) as made:
            await made.backups(store=self.backups, path="b").restore(self.found[number].id, to_seq=to_seq)

    async def restore_after_other(self, first: "State", second: "State", expected: dict[str, str]) -> None:
        """Interrupt a restore at each of its requests, and restore another state."""
        counted = Countdown()
        await self.restore(KillingStore(MemoryStore(), counted), *first, self.options())
        outcomes = []
        for last in range(1, counted.requests + 1):
            store, options = MemoryStore(), self.options()
            with pytest.raises(Killed):
                await self.restore(KillingStore(store, Countdown(last, after_effect=True)), *first, options)
            try:
                await self.restore(store, *second, options)
                outcomes.append(True)
            except InvalidDbState:
                outcomes.append(False)
                await self.restore(store, *first, options)
                continue
            assert await rows(store, **options) == expected
            async with admin(store, **options) as made:
                assert (await made.verify(deep=True)).findings == ()
            await write(store, {"e": "later"}, **options)
            assert await rows(store, **options) == {**expected, "e": "later"}
        assert outcomes == sorted(outcomes, reverse=True), "only a complete database is refused"
        assert outcomes.count(False) in (1, 2)


State = tuple[int, int | None]
both = pytest.mark.parametrize(
    ("is_encrypted", "has_backend"), [(False, False), (True, True)], ids=["plain", "encrypted, in a backend"]
)


@pytest.mark.slow
@both
def test_no_row_of_an_interrupted_restore_is_left(is_encrypted: bool, has_backend: bool) -> None:
    async def main() -> None:
        place = Place(is_encrypted=is_encrypted, has_backend=has_backend)
        await place.write()
        one, two = place.seqs
        early, late = {"a": "flushed", "b": "1", "c": "1"}, {"a": "flushed", "b": "2", "c": "1", "d": "2"}
        await place.restore_after_other((1, None), (0, None), early)
        await place.restore_after_other((0, None), (1, None), late)
        await place.restore_after_other((1, two - 1), (1, one - 1), {"a": "flushed", "b": "1"})
        await place.restore_after_other((1, one - 1), (1, two - 1), {"a": "flushed", "b": "2", "c": "1"})
        await place.restore_after_other((1, one - 1), (1, None), late)

    anyio.run(main)


@both
def test_a_restore_with_a_cut_file_continues_after_each_request(is_encrypted: bool, has_backend: bool) -> None:
    async def main() -> None:
        place = Place(is_encrypted=is_encrypted, has_backend=has_backend)
        await place.write()
        state = (1, place.seqs[1] - 1)
        counted = Countdown()
        await place.restore(KillingStore(MemoryStore(), counted), *state, place.options())
        for last in range(1, counted.requests + 1):
            store, options = MemoryStore(), place.options()
            with pytest.raises(Killed):
                await place.restore(KillingStore(store, Countdown(last, after_effect=True)), *state, options)
            await place.restore(store, *state, options)
            assert await rows(store, **options) == {"a": "flushed", "b": "2", "c": "1"}

    anyio.run(main)
