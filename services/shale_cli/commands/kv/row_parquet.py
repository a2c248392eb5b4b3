"""Reads and writes Parquet files, one row group at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shale.errors import InvalidRequestError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise InvalidRequestError("Parquet needs the package pyarrow: pip install 'shale[arrow]'") from None

from shale.engine.arrow.batches import SCHEMA, TIMESTAMP, batches_to_table

if TYPE_CHECKING:
    from shale.engine.scan.scan import Scan
    from shale_cli.framework.output.progress import OnProgress

_GROUP_BYTES = 32 << 20
"""Size of a row group, and so roughly the memory of an export."""


async def write(scan: "Scan", file: Path, on_progress: "OnProgress") -> int:
    """Write the rows of a scan and return their number."""
    rows, held, held_bytes = 0, [], 0
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        async for batch in scan.arrow_batches():
            held.append(batch)
            held_bytes += batch.nbytes
            rows += batch.num_rows
            if held_bytes >= _GROUP_BYTES:
                writer.write_table(batches_to_table(held))
                held, held_bytes = [], 0
            on_progress(rows)
        if held:
            writer.write_table(batches_to_table(held))
    return rows


def read(stream: BinaryIO, file: Path, rows_at_once: int) -> Iterator[tuple[bytes, bytes, int | None]]:
    """Yield keys, values and expiry times (milliseconds since 1970, if the file has the column ``expire_ts``).

    Raises:
        InvalidRequestError: the file is not Parquet, a column is missing or unreadable, or a key or value is null.
    """
    try:
        with stream, pq.ParquetFile(stream) as parquet:
            names = parquet.schema_arrow.names
            missing = [name for name in ("key", "value") if name not in names]
            if missing:
                raise InvalidRequestError(f"{file}: missing columns: {', '.join(missing)}")
            columns = [name for name in ("key", "value", "expire_ts") if name in names]
            for batch in parquet.iter_batches(rows_at_once, columns=columns):
                yield from _rows(batch, file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(f"{file}: {error}") from error


def _rows(batch: pa.RecordBatch, file: Path) -> Iterator[tuple[bytes, bytes, int | None]]:
    keys, values = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    if None in keys or None in values:
        raise InvalidRequestError(f"{file}: a key or value is null")
    expire_times: list[int | None] = [None] * len(keys)
    if "expire_ts" in batch.schema.names:
        expire_times = batch.column("expire_ts").cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    return zip(keys, values, expire_times, strict=True)
