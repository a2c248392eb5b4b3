"""The files of a WAL: what a store tells about them, which names are listed, and how few probes find the end."""

import pytest

from shale.errors import FencedError, InvalidDbState
from shale.format.names import wal_key
from shale.protocol.wal_store import WalFile, WalStore
from shale.store.memory import MemoryStore
from shale.store.port import LIST_PAGE
from shale.types import WalId
from tests.unit.protocol.conftest import ROOT, Process, World, run


def wal_of(process: Process, *, marks_epoch: bool = True) -> WalStore:
    return WalStore(process.store, ROOT, marks_epoch=marks_epoch)


def file(id_: int = 1, size: int = 5, etag: str | None = "e") -> WalFile:
    return WalFile(WalId(id_), size, 9, etag)


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        (file(), file(), True),
        (file(), WalFile(WalId(1), 5, 10, "e"), True),
        (file(), file(2), False),
        (file(), file(size=6), False),
        (file(), file(etag="f"), False),
        (file(etag="e#7"), file(etag="e"), True),
        (file(etag="e#7"), file(etag="f#7"), False),
        (file(etag=None), file(etag="e"), True),
        (file(etag=None), file(etag=None), True),
    ],
)
def test_a_file_is_told_by_id_size_and_etag(left: WalFile, right: WalFile, is_same: bool) -> None:
    assert left.is_same(right) is is_same
    assert right.is_same(left) is is_same


@pytest.mark.parametrize(("size", "is_fence"), [(0, True), (1, False)])
def test_a_fence_is_a_file_without_bytes(size: int, is_fence: bool) -> None:
    assert file(size=size).is_fence is is_fence


def test_what_the_store_tells_about_a_file(world: World) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        await wal.put_or_raise_fenced(3, [b"ro", b"ws"])
        written_ms = world.clock.ms
        world.clock.sleep(5)
        assert await wal.try_put_fence(4)
        assert (await wal.exists(3), await wal.exists(4), await wal.exists(5)) == (True, True, False)
        assert (await wal.size(3), await wal.size(4), await wal.size(5)) == (4, 0, None)
        assert (await wal.modified_ms(3), await wal.modified_ms(5)) == (written_ms, None)
        assert (await wal.read(3), await wal.read(4), await wal.read(5)) == (b"rows", b"", None)
        assert (await wal.read_range(3, 1, 3), await wal.read_range(5, 1, 3)) == (b"ow", None)
        assert await wal.read_file(5) is None
        read = await wal.read_file(3)
        assert read is not None
        assert read[1] == b"rows"
        (listed, _) = await wal.list()
        assert read[0] == listed
        assert (listed.id, listed.size, listed.last_modified_ms) == (3, 4, written_ms)
        assert listed.etag is not None

    run(main)


def test_only_the_writer_of_an_epoch_marks_its_files(world: World) -> None:
    async def main() -> None:
        process = world.process()
        wal = wal_of(process)
        await wal.put_or_raise_fenced(1, b"x", epoch=4)
        await wal.put_or_raise_fenced(2, b"x")
        assert await wal.try_put(3, b"x", epoch=0)
        assert [await wal.require_other_epoch(wal_id, 9) for wal_id in (1, 2, 3)] == [4, None, 0]
        assert await wal_of(process, marks_epoch=False).require_other_epoch(1, 4) is None

    run(main)


@pytest.mark.parametrize("epoch", [None, 5])
def test_the_writer_of_a_taken_slot_is_fenced(world: World, epoch: int | None) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        assert await wal_of(world.process()).try_put(1, b"x", epoch=4)
        assert not await wal.try_put(1, b"y", epoch=epoch)
        with pytest.raises(FencedError, match=f"{wal_key(ROOT, 1)} was taken by another writer"):
            await wal.put_or_raise_fenced(1, b"y", epoch=epoch)
        assert await wal.read(1) == b"x"

    run(main)


def test_other_names_are_logged_unless_they_are_staging_files(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for name in (f"{7:020}.sst", f"{7:020}.sst#1", "8.sst"):
            await world.memory.put(f"{ROOT}/wal/{name}", b"x")
        assert [each.id for each in await wal_of(world.process()).list()] == [7]

    run(main)
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "#1" in line] == []
    assert len([line for line in logged if "sequenced.list.unknown_file" in line and "db/wal/8.sst" in line]) == 1


def test_pages_begin_after_an_id(world: World) -> None:
    async def main() -> None:
        wal = wal_of(world.process())
        count = LIST_PAGE + 3
        for wal_id in range(1, count + 1):
            await world.memory.put(wal_key(ROOT, wal_id), b"x")
        assert [len(page) async for page in wal.pages()] == [LIST_PAGE, 3]
        assert [each.id async for page in wal.pages(after=count - 2) for each in page] == [count - 1, count]

    run(main)


class Probes(WalStore):
    """A WAL with ids up to ``last_id``, which records the probes."""

    def __init__(self, last_id: int) -> None:
        process = World().process()
        super().__init__(process.store, ROOT)
        self.last_id = last_id
        self.probes: list[int] = []

    async def exists(self, wal_id: int) -> bool:
        self.probes.append(wal_id)
        return wal_id <= self.last_id


@pytest.mark.parametrize(
    ("last_id", "probes"),
    [
        (100, [101, 102, 104, 108, 116, 132, 164, 228]),
        (101, [101, 102, 104, 108, 116, 132, 164, 228]),
        (103, [101, 102, 104, 108, 116, 132, 164, 228, 103]),
        (107, [101, 102, 104, 108, 116, 132, 164, 228, 106, 107]),
    ],
)
def test_the_end_is_bracketed_in_doubling_steps_and_halved(last_id: int, probes: list[int]) -> None:
    async def main() -> None:
        wal = Probes(last_id)
        assert await wal.last_seen_wal_id(100) == last_id
        assert wal.probes == probes

    run(main)


def test_the_end_of_a_wal_of_2_to_the_47_files_is_found() -> None:
    async def main() -> None:
        last_id = 2**47 - 1
        wal = Probes(last_id)
        assert await wal.last_seen_wal_id(0) == last_id
        assert wal.probes[:48] == [2**each for each in range(48)]
        for endless in (2**47, 2**60):
            with pytest.raises(InvalidDbState, match=f"{ROOT}/wal/ has no end above 0"):
                await Probes(endless).last_seen_wal_id(0)

    run(main)


@pytest.mark.parametrize("lost_id", [101, 102, 104, 108])
def test_a_lost_file_is_not_the_end_if_a_probe_meets_a_file_after_it(lost_id: int) -> None:
    async def main() -> None:
        process = World().process()
        wal = wal_of(process)
        for wal_id in range(101, 120):
            if wal_id != lost_id:
                await process.store.put(wal_key(ROOT, wal_id), b"x")
        assert await wal.last_seen_wal_id(100) == 119

    run(main)


def test_eight_probes_find_a_gap_without_a_listing() -> None:
    async def main() -> None:
        wal = Probes(107)
        assert await wal.last_seen_wal_id(100, has_gaps=True) == 107
        assert wal.probes == list(range(101, 109))

    run(main)


def test_a_wal_has_the_given_transformer() -> None:
    transformer = object()
    wal = WalStore(MemoryStore(), ROOT, transformer=transformer)  # type: ignore[arg-type]
    assert wal.transformer is transformer
