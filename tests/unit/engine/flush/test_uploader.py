"""Uploads of the SSTs of memtables."""

import anyio
import numpy as np
import pytest

from shale.engine.flush.uploader import L0Uploader
from shale.env import Env
from shale.errors import CorruptionError
from shale.kernels.rows import Rows
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.types import Ulid
from tests.bench.rows import bench_rows


def _large(numbers: np.ndarray) -> Rows:
    """Return 20 MB of rows, which are uploaded as a stream."""
    return bench_rows(numbers, value_bytes=1000)


async def _upload(store: MemoryStore, rows: Rows) -> None:
    uploader = L0Uploader(store, SstOptions(), None, Env.system())
    sst = await uploader.upload(rows, Ulid.from_parts(1, 1), "db/sst", min_seq=0, now_tick=0)
    assert sst is not None


def test_what_is_built_while_it_is_uploaded_is_whole() -> None:
    store, rows = MemoryStore(), _large(np.arange(20_000))
    anyio.run(_upload, store, rows)
    got = anyio.run(store.get, "db/sst")
    assert got is not None
    assert bytes(got.data) == build_sst(rows, SstOptions())[0]


def test_an_sst_that_cannot_be_finished_is_not_uploaded() -> None:
    store, numbers = MemoryStore(), np.arange(20_000)
    numbers[[-2, -1]] = numbers[[-1, -2]]
    with pytest.raises(CorruptionError):
        anyio.run(_upload, store, _large(numbers))
    assert anyio.run(store.get, "db/sst") is None
