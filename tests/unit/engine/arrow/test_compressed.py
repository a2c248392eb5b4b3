"""Arrow streams that are compressed, which a small answer of a server might be to fill the memory of its client."""

import pyarrow as pa
import pytest

from shale.engine.arrow.batches import SCHEMA
from shale.engine.arrow.compressed import uncompressed_bytes
from shale.engine.arrow.stream import read_table

ROWS = [{"key": b"k", "value": b"v" * 1000, "seq": 1, "create_ts": None, "expire_ts": None}]


def _stream(compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA))
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_what_buffers_claim_is_read_without_expanding_them(compression: str) -> None:
    # The value, the offsets of key and value, and the sequence number, with or without padding.
    assert 1000 + 8 + 8 + 8 <= uncompressed_bytes(_stream(compression)) <= 2000
    with pytest.raises(ValueError, match="it is compressed"):
        read_table(_stream(compression))


def test_a_stream_without_compression_claims_nothing() -> None:
    assert uncompressed_bytes(_stream(None)) == 0
    assert read_table(_stream(None))[0].to_pylist() == ROWS


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff", b"nonsense"])
def test_other_bytes_are_no_stream(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is Arrow's
        read_table(data)
