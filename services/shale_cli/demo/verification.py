"""Compares the loaded rows with the rows that readers return."""

from collections.abc import Mapping

import shale
from shale.core.lazy_dataclass import dataclass


@dataclass(slots=True)
class Comparison:
    """The result of comparing a scan with the loaded rows."""

    rows: int = 0
    equal: int = 0
    unknown_keys: int = 0
    repeated_keys: int = 0


async def compare_scan(url: str, expected: Mapping[bytes, bytes]) -> Comparison:
    """Read all rows through a reader with its own checkpoint and compare them."""
    result = Comparison()
    previous: bytes | None = None
    async with shale.DbReader.open(url) as reader:
        async for rows in reader.scan().batches(4096):
            for row in rows:
                result.rows += 1
                result.repeated_keys += row.key == previous
                previous = row.key
                value = expected.get(row.key)
                result.unknown_keys += value is None
                result.equal += value == row.value
    return result


async def slatedb_scan(directory: str, path: str, expected: Mapping[bytes, bytes]) -> Comparison | None:
    """Read and compare all rows through the SlateDB package; ``None`` if it is not installed."""
    try:
        from slatedb import uniffi
    except ImportError:
        return None
    store = uniffi.ObjectStore.resolve("file:///")
    reader = await uniffi.DbReaderBuilder(f"{directory}/{path}".lstrip("/"), store).build()
    result = Comparison()
    try:
        everything = uniffi.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        iterator = await reader.scan(everything)
        while rows := await iterator.next_batch(1024):
            for row in rows:
                result.rows += 1
                value = expected.get(bytes(row.key))
                result.unknown_keys += value is None
                result.equal += value == bytes(row.value)
    finally:
        await reader.shutdown()
    return result
