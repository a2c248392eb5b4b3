"""The default check finds one flipped bit in any block of any file, whatever its codec and key."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.crypto.aes_gcm import AesGcm
from shale.env import Env
from shale.sst.verify.codes import Code
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta

ENV = Env.system()
CIPHER = AesGcm({"k1": bytes(range(32))})


async def fill(store: MemoryStore, **settings: Any) -> None:
    """Write an L0 with several blocks and filters, one more, and rows that are only in the WAL."""
    options = {"store": store, "block_size_bytes": 1024, "min_filter_keys": 1, "flush_interval": None, **settings}
    async with shale.Db.open("db", **options) as db:
        for turn in range(3):
            for number in range(60):
                await db.put(b"key-%04d" % number, b"%d" % turn * 60)
            await db.flush("wal")
            if turn < 2:
                await db.flush("memtable")
        await db.close("wal")


@asynccontextmanager
async def admin_of(store: MemoryStore, cipher: AesGcm | None) -> AsyncIterator[shale.Admin]:
    async with shale.Admin("db", store=store, block_transformer=cipher) as admin:
        yield admin


def files_of(store: MemoryStore) -> Sequence[ObjectMeta]:
    """Return SSTs and WAL files, but not fences."""
    metas = [stored.meta for key, stored in store.objects.items() if key.endswith(".sst")]
    return [meta for meta in metas if meta.size]


async def flip(store: MemoryStore, key: str, bit: int) -> bytes:
    data = store.objects[key].data
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    await store.put(key, bytes(damaged))
    return data


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
@pytest.mark.parametrize("compression", ["none", "lz4", "snappy", "zlib", "zstd"])
def test_a_flipped_bit_is_found_wherever_it_is(compression: str, cipher: AesGcm | None) -> None:
    async def main() -> None:
        store, rng = MemoryStore(), Random(1)
        await fill(store, compression=compression, block_transformer=cipher)
        async with admin_of(store, cipher) as admin:
            sound = await admin.verify()
            assert sound.is_sound
            assert sound.blocks > 2
            assert sound.rows is None
            files = files_of(store)
            assert {key.split("/")[1] for key in (meta.key for meta in files)} == {"compacted", "wal"}
            for meta in files:
                for step in range(8):  # each eighth of the file: blocks, index, filter, stats and footer
                    start = meta.size * step // 8
                    data = await flip(store, meta.key, rng.randrange(start * 8, meta.size * (step + 1) // 8 * 8))
                    report = await admin.verify()
                    assert meta.key in {finding.object for finding in report.findings}, (meta.key, step)
                    await store.put(meta.key, data)

    anyio.run(main)


def test_each_block_is_told() -> None:
    async def main() -> None:
        store = MemoryStore()
        await fill(store)
        async with admin_of(store, None) as admin:
            sst = (await admin.verify()).ssts
            assert sst == 2
            meta = next(meta for meta in files_of(store) if "/compacted/" in meta.key)
            for bit in (80, 80 + 8 * 1500):
                await flip(store, meta.key, bit)
            report = await admin.verify()
            assert [(finding.object, finding.code) for finding in report.findings] == [(meta.key, Code.CHECKSUM)] * 2
            assert len({finding.offset for finding in report.findings}) == 2
            assert (await admin.verify(quick=True)).is_sound
            with pytest.raises(shale.InvalidRequestError, match="only one"):
                await admin.verify(quick=True, deep=True)

    anyio.run(main)


def test_progress_is_told_in_bytes() -> None:
    async def main() -> None:
        store = MemoryStore()
        await fill(store)
        seen: list[tuple[int, int]] = []
        async with admin_of(store, None) as admin:
            report = await admin.verify(on_progress=lambda step: seen.append((step.read_bytes, step.total_bytes)))
        done = [read for read, _ in seen]
        assert done == sorted(done)
        assert 0.9 < report.read_bytes / seen[-1][1] < 1.1

    anyio.run(main)
