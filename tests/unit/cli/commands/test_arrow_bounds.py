"""Stored Arrow values that stand for much more than their bytes."""

import struct
from typing import Any

import pyarrow as pa
import pytest

from shale.errors import InvalidRequestError
from shale_cli.commands.kv.arrow_row import as_stream, decode_row

MANY = 10_000_000


def _one_list(items: Any) -> Any:
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(items)))
    return pa.Array.from_buffers(pa.list_(items.type), 1, [None, offsets], children=[items])


def _stream(column: Any) -> bytes:
    return as_stream(pa.RecordBatch.from_arrays([column], names=["v"]))


def _overlapping() -> Any:
    """Return lists of lists, each of which has all of the next level."""
    array: Any = pa.array(["x"] * 256)
    for _ in range(4):
        offsets, sizes = pa.array([0] * 256, pa.int32()), pa.array([256] * 256, pa.int32())
        array = pa.ListViewArray.from_arrays(offsets, sizes, array)
    return array.slice(0, 1)


HOSTILE = {
    "nulls": lambda: _one_list(pa.nulls(MANY)),
    "no bytes": lambda: _one_list(pa.Array.from_buffers(pa.binary(0), MANY, [None, pa.py_buffer(b"")])),
    "no fields": lambda: _one_list(pa.Array.from_buffers(pa.struct([]), MANY, [None], children=[])),
    "runs": lambda: _one_list(pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int32()), pa.array(["x" * 1000]))),
    "long runs": lambda: _one_list(
        pa.RunEndEncodedArray.from_arrays(pa.array([60_000], pa.int32()), pa.array(["x" * 9000]))
    ),
    "dictionary": lambda: _one_list(pa.DictionaryArray.from_arrays(pa.array([0] * 2000), pa.array(["x" * 100_000]))),
    "views": lambda: _one_list(_views(2000, 100_000)),
    "overlapping lists": _overlapping,
}


def _views(count: int, size: int) -> Any:
    view = struct.pack("<i4sii", size, b"xxxx", 0, 0)
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(view * count), pa.py_buffer(b"x" * size)])


@pytest.mark.parametrize("name", HOSTILE)
def test_values_that_claim_too_much_are_refused(name: str) -> None:
    data = _stream(HOSTILE[name]())
    assert len(data) < 300_000
    with pytest.raises(InvalidRequestError):
        decode_row(data)


def _compressed(column: Any, codec: str) -> bytes:
    batch, sink = pa.RecordBatch.from_arrays([column], names=["v"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_compressed_values_are_bounded(codec: str, is_dictionary: bool) -> None:
    large, small = (pa.array(["x" * size]) for size in (100_000_000, 100_000))
    columns = [each.dictionary_encode() if is_dictionary else each for each in (large, small)]
    data = _compressed(columns[0], codec)
    assert len(data) < 500_000
    with pytest.raises(InvalidRequestError, match="bytes after they are expanded"):
        decode_row(data)
    assert decode_row(_compressed(columns[1], codec)) == {"v": "x" * 100_000}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[None] * 50_000]),
        pa.array([["ab"] * 100_000]),
        pa.array([list(range(100_000))]),
        pa.array([[True, False] * 50_000]),
        pa.array([{"a": [{"b": [1.5]}] * 1000}]),
        pa.array([[("k", 1)] * 1000], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, 2]], pa.list_view(pa.int64())),
        pa.array(["x" * 100], pa.string_view()),
        pa.array(["x"]).dictionary_encode(),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array(["x" * 1_000_000]),
        pa.array([None], pa.list_view(pa.string_view())),
        pa.array([None, "x"]).dictionary_encode().slice(0, 1),
    ],
    ids=lambda column: str(column.type)[:40],
)
def test_values_are_read_as_they_are(column: Any) -> None:
    assert decode_row(_stream(column)) == {"v": column.to_pylist()[0]}
