"""Databases with a damaged file: a Shale error that names the file, or rows; no crash, hang or exception group."""

import shutil
from pathlib import Path
from random import Random

import anyio
import pytest

from shale.engine.db_reader import DbReader
from shale.errors import CorruptionError, ShaleError
from tests.golden_files import FIXTURES
from tests.interop.read.databases import concatenate

CASES = ("tiny_l0", "many_l0", "merge_operands", "segments", "compressed_zstd", "wal_multi_block", "small_filter")
LIMIT_S = 60


def damage(data: bytes, rng: Random) -> bytes:
    """Truncate a file, overwrite eight bytes, or flip a bit."""
    damaged = bytearray(data)
    place = rng.randrange(len(data))
    match rng.randrange(4):
        case 0:
            return data[:place]
        case 1:
            damaged[place : place + 8] = rng.choice((rng.randbytes(8), b"\xff" * 8, bytes(8)))
        case _:
            damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged[: len(data)])


async def read_everything(folder: Path) -> None:
    async with DbReader.open("db", store=f"file://{folder}", follow_latest=True, merge_operator=concatenate) as reader:
        keys = [row.key async for row in reader.scan()]
        await reader.get_many([*keys, b"absent"])
        for key in keys[:20]:
            await reader.get(key)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    case = rng.choice(CASES)
    shutil.copytree(FIXTURES / case / "db", tmp_path / "db")
    latest = max((tmp_path / "db" / "manifest").iterdir())
    ssts = sorted(path for path in (tmp_path / "db").rglob("*.sst") if path.stat().st_size)
    victim = rng.choice([latest, *ssts])
    victim.write_bytes(damage(victim.read_bytes(), rng))

    async def outcome() -> ShaleError | None:
        with anyio.fail_after(LIMIT_S):
            try:
                await read_everything(tmp_path)
            except ShaleError as error:
                return error
        return None

    error = anyio.run(outcome)
    if isinstance(error, CorruptionError):
        assert error.path is not None
        assert victim == latest or error.path.endswith(victim.name), error
    else:
        assert error is None or victim == latest, error
