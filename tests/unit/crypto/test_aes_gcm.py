"""Encryption at rest: no plaintext in the store, all rows readable with the key, and a clear error without it."""

import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest

import shale
from shale.admin.verify.inventory import read_inventory
from shale.admin.verify.parts import plan_parts, verify_part
from shale.crypto.aes_gcm import AesGcm, key_file_of, transformer_of
from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.feed.reading import read_part
from shale.engine.wal.feed.seq_span import read_seq_span
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, InvalidRequestError
from shale.format.blocks.transform import BlockTransformer, TransformError
from shale.protocol.wal_store import WalStore
from shale.store.memory import MemoryStore
from shale.types import Compression

KEY = bytes(range(32))
SECRET = b"a secret value that no one else may read"


class World:
    """One store with encrypted databases."""

    def __init__(self, transformer: BlockTransformer | None) -> None:
        self.transformer = transformer
        self.env = Env(SystemClock(), Random(1), InlineCpu())
        self.store = MemoryStore()

    def db(self, **settings: Any) -> Any:
        settings = {"block_transformer": self.transformer, "min_filter_keys": 1, **settings}
        return shale.Db.open("db", store=self.store, env=self.env, **settings)

    def reader(self, **settings: Any) -> Any:
        settings = {"block_transformer": self.transformer, "follow_latest": True, **settings}
        return shale.DbReader.open("db", store=self.store, env=self.env, **settings)

    async def everything(self) -> dict[str, bytes]:
        return {
            meta.key: bytes(got.data)
            for meta in await self.store.list("db/")
            if (got := await self.store.get(meta.key)) is not None
        }


def run(test: Callable[[World], Awaitable[None]], transformer: BlockTransformer | None = None) -> None:
    anyio.run(test, World(transformer if transformer is not None else AesGcm({"k1": KEY})))


async def fill(world: World, *, flush: str, **settings: Any) -> None:
    db = await world.db(**settings)
    for number in range(100):
        await db.put(b"key%03d" % number, SECRET + b"%d" % number)
    await db.close(flush=flush)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("flush", ["wal", "memtable"])
def test_what_is_written_is_read_and_nothing_shows(flush: str, compression: Compression) -> None:
    async def test(world: World) -> None:
        await fill(world, flush=flush, compression=compression)
        for data in (await world.everything()).values():
            assert SECRET not in data
            assert b"key050" not in data
        async with world.reader() as reader:
            assert await reader.get(b"key042") == SECRET + b"42"
            assert await reader.get(b"absent") is None
            assert len([row async for row in reader.scan()]) == 100
        async with world.db() as db:
            assert await db.get(b"key099") == SECRET + b"99"

    run(test)


@pytest.mark.parametrize("flush", ["wal", "memtable"])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        pytest.param(AesGcm({"k1": KEY[::-1]}), "key 'k1' is not the one it was written with", id="another key"),
        pytest.param(AesGcm({"k2": KEY}), "key 'k1', which is not among the keys", id="another name"),
        pytest.param(None, None, id="no key"),
    ],
)
def test_without_the_key_the_error_names_the_object(flush: str, other: AesGcm | None, said: str | None) -> None:
    async def test(world: World) -> None:
        await fill(world, flush=flush)
        world.transformer = other
        with pytest.raises(CorruptionError, match=said) as raised:
            async with world.reader() as reader:
                await reader.get(b"key042")
        assert raised.value.path is not None
        assert raised.value.path.endswith(".sst")
        assert SECRET not in str(raised.value).encode()

    run(test)


def test_what_was_never_encrypted_is_named() -> None:
    async def test(world: World) -> None:
        key, world.transformer = world.transformer, None
        await fill(world, flush="memtable")
        world.transformer = key
        with pytest.raises(CorruptionError, match=r"\.sst at byte \d+: it is not encrypted"):
            async with world.reader() as reader:
                await reader.get(b"key042")

    run(test)


def test_a_new_key_writes_and_the_old_one_still_reads() -> None:
    async def test(world: World) -> None:
        await fill(world, flush="memtable")
        world.transformer = AesGcm({"k2": KEY[::-1], "k1": KEY})
        async with world.db() as db:
            await db.put(b"new", SECRET)
            await db.flush("memtable")
            assert await db.get(b"key042") == SECRET + b"42"
        sections = [data for key, data in (await world.everything()).items() if "/compacted/" in key]
        assert sorted((b"\x01\x02k1" in data, b"\x01\x02k2" in data) for data in sections) == [
            (False, True),
            (True, False),
        ]

    run(test)


def test_no_two_sections_have_a_nonce_in_common() -> None:
    seen: set[bytes] = set()
    cipher = AesGcm({"k": KEY})
    for _ in range(1000):
        stored = cipher.encode(b"x")
        seen.add(stored[3:15])
        assert cipher.decode(stored) == b"x"
    assert len(seen) == 1000


@pytest.mark.parametrize("place", range(2 + 2 + 12 + 5 + 16))
def test_every_byte_counts(place: int) -> None:
    cipher = AesGcm({"k1": KEY})
    stored = bytearray(cipher.encode(b"12345"))
    stored[place] ^= 1
    with pytest.raises(TransformError):
        cipher.decode(bytes(stored))


@pytest.mark.parametrize("size", range(33))
def test_too_few_bytes(size: int) -> None:
    cipher = AesGcm({"k1": KEY})
    with pytest.raises(TransformError):
        cipher.decode(cipher.encode(b"")[: min(size, 31)])


def test_the_log_is_decrypted_wherever_it_is_read() -> None:
    async def test(world: World) -> None:
        async with world.db(flush_interval=None) as db:
            for start in (0, 2000):
                for number in range(start, start + 2000):
                    await db.put(b"key%06d" % number, Random(number).randbytes(300))
                await db.flush("wal")
            wal = WalStore(world.store, "db", transformer=world.transformer)
            files = [file for file in await wal.list() if not file.is_fence]
            assert files[0].size > 256 << 10, "only the end of it is read for its span"
            span = await read_seq_span(wal, files[0].id, files[0].size, world.env)
            assert span is not None
            assert (span.first, span.last) == (1, 2000)
            part = FeedPart(files[0].id, files[-1].id, after_seq=0)
            given = [rows async for _, rows in read_part(wal, part, world.env)]
            assert sum(map(len, given)) == 4000

    run(test)


def test_a_check_reads_everything() -> None:
    async def test(world: World) -> None:
        await fill(world, flush="memtable")
        await fill(world, flush="wal")
        for transformer, is_sound in ((world.transformer, True), (AesGcm({"k1": KEY[::-1]}), False)):
            wal = WalStore(world.store, "db", transformer=transformer)
            inventory = await read_inventory(world.store, None, "db", world.env)
            parts = plan_parts(inventory, part_bytes=1 << 20, items_max=10)
            results = [await verify_part(part, world.store, wal, world.env) for part in parts]
            assert (not any(result.findings for result in results)) is is_sound

    run(test)


class Xor:
    """The example in SlateDB's documentation."""

    def encode(self, data: Any) -> bytes:
        return bytes(byte ^ 0x5A for byte in bytes(data))

    decode = encode


def test_any_transformer_will_do() -> None:
    async def test(world: World) -> None:
        await fill(world, flush="memtable", compression="zstd")
        async with world.reader() as reader:
            assert await reader.get(b"key042") == SECRET + b"42"

    run(test, Xor())


def key_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "keys"
    path.write_text(text)
    return path


def test_keys_from_a_file(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"# written by the key service\n\n2026-11 {KEY.hex()}\n2026-10  {KEY[:16].hex()}\n")
    cipher = AesGcm.from_file(path)
    assert AesGcm({"2026-11": KEY}).decode(cipher.encode(b"x")) == b"x"
    assert cipher.decode(AesGcm({"2026-10": KEY[:16]}).encode(b"y")) == b"y"
    assert KEY.hex() not in repr(cipher)
    assert repr(cipher) == "AesGcm(2026-11, 2026-10)"
    assert AesGcm({"2026-11": KEY}).decode(pickle.loads(pickle.dumps(cipher)).encode(b"z")) == b"z"
    assert KEY not in pickle.dumps(cipher)
    again = transformer_of(key_file_of(cipher))
    assert again is not None
    assert again.decode(cipher.encode(b"x")) == b"x"
    assert transformer_of(key_file_of(None)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no key"),
        ("only-a-name", "line 1: write a name and a key"),
        ("# x\nk zz", "line 2: the key is not hexadecimal"),
        ("k 00ff", "line 1: the key has 2 bytes"),
        (KEY.hex() + " 2026", "line 1: the key has 2 bytes"),
        (f"k {KEY.hex()}\nk {KEY.hex()}", "two keys k"),
        (f"{'k' * 256} {KEY.hex()}", "not a key name"),
    ],
)
def test_files_that_make_no_sense(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as raised:
        AesGcm.from_file(key_file(tmp_path, text))
    assert KEY.hex() not in str(raised.value)


def test_keys_that_processes_cannot_share_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be read: FileNotFoundError"):
        AesGcm.from_file(tmp_path / "none")
    with pytest.raises(InvalidRequestError, match="there is no key k2"):
        AesGcm({"k1": KEY}, write_with="k2")
    with pytest.raises(TypeError, match="from_file"):
        pickle.dumps(AesGcm({"k1": KEY}))
    with pytest.raises(InvalidRequestError, match="from_file"):
        key_file_of(AesGcm({"k1": KEY}))


def test_a_reader_pickles_with_the_name_of_its_key_file(tmp_path: Path) -> None:
    keys = key_file(tmp_path, f"k1 {KEY.hex()}")

    async def run_() -> None:
        url = f"file://{tmp_path}/db"
        async with shale.Db.open(url, block_transformer=AesGcm.from_file(keys)) as db:
            await db.put(b"a", SECRET)
        async with shale.DbReader.open(url, block_transformer=AesGcm.from_file(keys)) as reader:
            assert isinstance(reader.checkpoint_id, UUID)
            travelled = pickle.dumps(reader)
            assert KEY not in travelled
            async with pickle.loads(travelled) as other:
                assert await other.get(b"a") == SECRET

    anyio.run(run_)
