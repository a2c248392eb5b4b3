"""Gets of blocks that are not in memory, from a directory: the kernel asks for one part after the other."""

from pathlib import Path
from random import Random

import pytest

import shale
from shale.errors import CorruptionError
from shale.kernels import dispatch
from shale.telemetry.metrics import Metrics

pytestmark = pytest.mark.anyio
KEYS = [b"%016x" % Random(number).getrandbits(64) for number in range(2000)]


def concatenate(_key: bytes, existing: bytes | None, operands: list[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


async def fill(url: str) -> dict[bytes, bytes | None]:
    """Write four L0s with overlapping keys: values, newer values, tombstones and operands."""
    rng, expected = Random(4), dict[bytes, bytes | None]()
    async with shale.Db.open(url, merge_operator=concatenate) as db:
        for round_number in range(4):
            for key in rng.sample(KEYS, 900):
                kind = rng.random()
                if kind < 0.7:
                    expected[key] = b"v%d" % round_number * 20
                    await db.put(key, b"v%d" % round_number * 20)
                elif kind < 0.85:
                    expected[key] = None
                    await db.delete(key)
                else:
                    expected[key] = (expected.get(key) or b"") + b"+%d" % round_number
                    await db.merge(key, b"+%d" % round_number)
            await db.flush("memtable")
    return expected


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "plain"])
@pytest.mark.parametrize("cache_bytes", [0, 20_000, 1 << 20])
async def test_every_key_is_found_whatever_the_cache_holds(
    tmp_path: Path, cache_bytes: int, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await fill(f"file://{tmp_path}/db")
    if not kernels:
        monkeypatch.setattr(dispatch, "compiled", None)
    options = {"merge_operator": concatenate, "block_cache_bytes": cache_bytes}
    async with shale.DbReader.open(f"file://{tmp_path}/db", **options) as reader:  # type: ignore[arg-type]
        for key in KEYS:
            assert await reader.get(key) == expected.get(key)
        row = await reader.get_row(next(key for key in KEYS if expected.get(key)))
        assert row is not None


async def test_misses_are_counted_once_and_are_no_hits(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    metrics = Metrics()
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate, metrics=metrics) as reader:
        for key in KEYS[:200]:
            await reader.get(key)
        cold = accesses(metrics)
        for key in KEYS[:200]:
            await reader.get(key)
        warm = accesses(metrics)
    assert cold["index", "miss"] == 4
    assert all(count >= 0 for count in cold.values())
    assert warm["data_block", "miss"] == cold["data_block", "miss"] > 0
    # Each get looks at as many blocks as before, and now finds all of them.
    seen = cold["data_block", "hit"] + cold["data_block", "miss"]
    assert warm["data_block", "hit"] - cold["data_block", "hit"] >= seen * 0.9


def accesses(metrics: Metrics) -> dict[tuple[str, str], float]:
    counted = {}
    metrics.refresh()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "slatedb_db_cache_accesses_total":
                counted[sample.labels["entry_kind"], sample.labels["result"]] = sample.value
    return counted


async def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    for path in (tmp_path / "db" / "compacted").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[100] ^= 0xFF
        path.write_bytes(data)
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        with pytest.raises(CorruptionError, match="compacted/"):
            await read_all(reader)


async def read_all(reader: shale.DbReader) -> None:
    for key in sorted(KEYS):
        await reader.get(key)
