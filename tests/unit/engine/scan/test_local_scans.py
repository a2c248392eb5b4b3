"""Full scans of SSTs in local files: the merging thread reads what the page cache holds, and waits for nothing."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import shale
from shale.core.open_file import LocalFiles
from shale.errors import CorruptionError
from shale.kernels.dispatch import use_kernels
from shale.store.local_store.adapter import LocalStore
from shale.store.port import LocalObject, OpenLocal

pytestmark = pytest.mark.anyio
ROWS, SSTS = 12_000, 4
KEYS = [b"%016x" % Random(number).getrandbits(64) for number in range(ROWS)]
EXPECTED = sorted((key, b"%05d" % number * 60) for number, key in enumerate(KEYS))


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """Four L0s with overlapping keys, of several reads each."""
    if not use_kernels():
        pytest.skip("there are no compiled kernels")
    (tmp_path / "probe").write_bytes(b"x")
    if LocalFiles().open(str(tmp_path / "probe")) is None:
        pytest.skip("this file system has no reads that do not wait")
    url = f"file://{tmp_path}/db"
    values = dict(EXPECTED)
    async with shale.Db.open(url, flush_interval=None) as db:
        for first in range(SSTS):
            batch = shale.WriteBatch()
            for key in KEYS[first::SSTS]:
                batch.put(key, values[key])
            await db.write(batch)
            await db.flush("memtable")
    return url


class RefusingObject:
    """An open object of which some reads would wait."""

    def __init__(self, inner: LocalObject, refuses: Callable[[], bool]) -> None:
        self._inner = inner
        self._refuses = refuses

    def read_into(self, buffer: memoryview, start: int) -> int:
        return 0 if self._refuses() else self._inner.read_into(buffer, start)


def patch_reads(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[], bool]) -> None:
    open_local = LocalStore.open_local

    def open_refusing(store: LocalStore) -> OpenLocal:
        def opened(key: str) -> LocalObject | None:
            inner = open_local.__get__(store)(key)
            return None if inner is None else RefusingObject(inner, refuses)

        return opened

    monkeypatch.setattr(LocalStore, "open_local", property(open_refusing))


async def scan_to_items(url: str) -> list[tuple[bytes, bytes]]:
    items = []
    async with shale.DbReader.open(url) as reader:
        async for batch in reader.scan().arrow_batches():
            items += list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return items


@pytest.mark.slow
@pytest.mark.parametrize("refused", [0.0, 0.2, 0.5, 1.0])
async def test_a_scan_is_complete_however_many_reads_would_wait(
    url: str, monkeypatch: pytest.MonkeyPatch, refused: float
) -> None:
    rng = Random(5)
    patch_reads(monkeypatch, lambda: rng.random() < refused)
    assert await scan_to_items(url) == EXPECTED


async def test_what_the_page_cache_holds_takes_no_read_that_waits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[str] = []
    read = LocalStore.get_range

    async def recorded(store: LocalStore, key: str, start: int, end: int) -> memoryview | None:
        if end - start > 100_000:
            waiting.append(key)
        return await read(store, key, start, end)

    monkeypatch.setattr(LocalStore, "get_range", recorded)
    # The kernel may refuse such a read of a page that it holds, for example while it writes that page to the disk.
    for _ in range(5):
        waiting.clear()
        assert await scan_to_items(url) == EXPECTED
        if not waiting:
            return
    pytest.fail(f"each of five scans has waited, the last one for {waiting}")


async def test_batches_keep_their_rows_while_the_scan_reads_on(url: str) -> None:
    async with shale.DbReader.open(url) as reader:
        batches = [batch async for batch in reader.scan().arrow_batches()]
    keys = [key for batch in batches for key in batch["key"].to_pylist()]
    assert keys == [key for key, _ in EXPECTED]


@pytest.mark.slow
async def test_a_scan_reads_on_after_its_ssts_were_deleted(url: str, tmp_path: Path) -> None:
    """Their bytes never change, so an open file answers as the block cache does."""
    async with shale.DbReader.open(url) as reader:
        scan = reader.scan()
        first = await scan.columns()
        assert first is not None
        for path in (tmp_path / "db" / "compacted").glob("*.sst"):
            path.unlink()
        count = len(first)
        while (rows := await scan.columns()) is not None:
            count += len(rows)
    assert count == ROWS


@pytest.mark.slow
async def test_a_damaged_block_is_named(url: str, tmp_path: Path) -> None:
    path = max((tmp_path / "db" / "compacted").glob("*.sst"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=f"compacted/{path.name}"):
        await scan_to_items(url)
