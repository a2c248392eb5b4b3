"""The WAL of a clone's source: the files that a clone needs, the missing ones, and the copy."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shale.clones.wal_files import copy_files, files_left_out, require_complete_wal, wal_range
from shale.env import Env, InlineCpu
from shale.errors import InvalidDbState, WalTruncated
from shale.kernels.rows import rows_from_entries
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.store.memory import MemoryStore
from shale.types import Compression, Entry, Manifest, Seq, WalId
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run

ENV = Env(ManualClock(), random.Random(1), InlineCpu())


def file_of(seq: int) -> bytes:
    """Return a WAL file with one row."""
    return build_wal_sst(rows_from_entries([Entry(b"key", b"", seq, 0)]), Compression.NONE)


ROWS = file_of(5)


class Logs:
    """The WALs of a source and of its clone, in one store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.source, self.clone = (WalStore(self.store, root) for root in ("source", "clone"))

    async def write(self, ids: Sequence[int], data: bytes = ROWS) -> None:
        """Write files of the source; files without data are fences."""
        for wal_id in ids:
            assert await self.source.try_put(WalId(wal_id), data)

    async def contents(self) -> dict[WalId, memoryview | None]:
        """Return the files of the clone."""
        return {file.id: await self.clone.read(file.id) async for page in self.clone.pages() for file in page}


def state(replay_after: int, next_id: int) -> Manifest:
    return replace(Manifest(), replay_after_wal_id=WalId(replay_after), next_wal_sst_id=WalId(next_id))


def test_the_files_of_a_manifest_are_those_between_its_l0s_and_its_next_file() -> None:
    assert list(wal_range(state(3, 6))) == [4, 5]
    assert list(wal_range(state(5, 6))) == []


@pytest.mark.parametrize(("present", "named"), [([5, 6], 4), ([4, 5], 6), ([], 4)])
def test_a_first_or_last_file_that_is_gone_is_named(present: list[int], named: int) -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write(present)
        with pytest.raises(InvalidDbState, match=rf"{named:020}"):
            await require_complete_wal(logs.source, state(3, 7))

    run(main)


def test_a_whole_log_and_an_empty_one_are_complete() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([4, 5, 6])
        await require_complete_wal(logs.source, state(3, 7))
        await require_complete_wal(logs.source, state(9, 10))

    run(main)


def test_files_whose_rows_are_all_in_l0s_are_not_left_out() -> None:
    async def main() -> None:
        logs = Logs()
        for wal_id in range(1, 5):
            await logs.write([wal_id], file_of(wal_id))
        for last_seq, count in ((2, 2), (3, 1), (4, 0)):
            flushed = replace(state(0, 3), last_l0_seq=Seq(last_seq))
            assert await files_left_out(logs.source, flushed, ENV) == count

    run(main)


def test_a_file_that_cannot_be_read_may_hold_any_row() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1, 2], b"encrypted, or damaged")
        assert await files_left_out(logs.source, state(0, 1), ENV) == 2

    run(main)


def test_files_with_rows_that_the_manifest_does_not_know_are_counted() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1, 2])
        assert await files_left_out(logs.source, state(0, 3), ENV) == 0
        await logs.write([3], b"")
        assert await files_left_out(logs.source, state(0, 3), ENV) == 0
        await logs.write([4, 5])
        assert await files_left_out(logs.source, state(0, 3), ENV) == 2
        assert await files_left_out(logs.source, state(0, 5), ENV) == 1

    run(main)


def test_files_after_a_lost_one_that_the_manifest_does_not_know_are_counted() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1, 2, 4, 5])
        assert await files_left_out(logs.source, state(0, 3), ENV) == 2

    run(main)


def test_only_files_older_than_the_checkpoint_are_counted() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([3])
        logs.clock.sleep(1)
        taken_ms = logs.clock.ms
        await logs.write([4])
        logs.clock.sleep(1)
        await logs.write([5])
        assert await files_left_out(logs.source, state(0, 3), ENV, taken_ms) == 1
        assert await files_left_out(logs.source, state(0, 3), ENV, taken_ms + 1) == 2
        assert await files_left_out(logs.source, state(0, 4), ENV, taken_ms) == 0

    run(main)


def test_copies_keep_their_ids_and_a_second_run_changes_nothing() -> None:
    async def main() -> None:
        logs = Logs()
        for wal_id in range(1, 11):
            await logs.write([wal_id], b"%d" % wal_id)
        for _ in range(2):
            assert await copy_files(logs.source, logs.clone, wal_range(state(1, 10))) == 8
            assert await logs.contents() == {wal_id: b"%d" % wal_id for wal_id in range(2, 10)}

    run(main)


def test_a_copy_stops_at_a_missing_file_and_keeps_what_came_before() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1, 2, 3, 4, 5, 7])
        with pytest.raises(WalTruncated, match=r"source/wal/0*6"):
            await copy_files(logs.source, logs.clone, range(1, 8))
        assert list(await logs.contents()) == [1, 2, 3, 4, 5]

    run(main)


def test_another_file_under_the_id_of_a_copy_is_kept_and_named() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1, 2])
        assert await logs.clone.try_put(WalId(2), b"rows of a writer of the clone")
        with pytest.raises(InvalidDbState, match=r"clone/wal/0*2.* is not a copy of source/wal/"):
            await copy_files(logs.source, logs.clone, range(1, 3))
        assert await logs.contents() == {1: ROWS, 2: b"rows of a writer of the clone"}

    run(main)
