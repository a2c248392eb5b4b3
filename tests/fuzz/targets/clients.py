"""Files and values that commands, clients and executors read: imports, journals, values and operands."""

import io
import json
import random
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from shale.codecs.documents import JsonCodec, MsgpackCodec
from shale.codecs.plain import BytesCodec, IntCodec, StructCodec, TextCodec
from shale.errors import CorruptionError, InvalidRequestError
from shale.merge_operators import BUILT_IN
from shale_cli.commands.kv.arrow_row import as_stream, encode_row
from shale_cli.commands.kv.import_journal import ImportJournal, may_run
from shale_cli.commands.kv.row_import import source
from shale_cli.commands.kv.row_layout import RowLayout, ValueFormat, decoder_of
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from tests.fuzz.folder import folder
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.target import Target
from tests.fuzz.targets.http import mutate_msgpack
from tests.fuzz.targets.metadata import JSON_MUTATION, JSON_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMATS = ("ndjson", "csv", "parquet", "arrow")
_LAYOUTS = (
    RowLayout(),
    RowLayout(key="key", value="value"),
    *(RowLayout(key="key", value_format=each) for each in ValueFormat),
)


def _import(data: bytes) -> None:
    """Read all rows of a file; the first byte says its format, and the columns."""
    kind = data[0] if data else 0
    path = folder() / "rows"
    path.write_bytes(data[1:])
    output = Output(Format.JSON, list(KeyEncoding)[kind >> 5 & 3])
    layout = _LAYOUTS[(kind >> 2) % len(_LAYOUTS)]
    for row in source(output, path, _FORMATS[kind & 3], layout=layout, skip=0).rows:
        assert type(row.key) is bytes
        assert type(row.value) is bytes


def _table() -> Any:
    keys = [b"a", b"b" * 30, b"c"]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([b"1", b"", b"x" * 100], pa.binary()),
            "number": pa.array([1, None, 3]),
            "when": pa.array([0, 1, 2], pa.timestamp("ns")),
            "name": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )


def _files() -> list[bytes]:
    lines = b'{"key": "a", "value": "1"}\n{"key_b64": "YQ==", "value_b64": "", "expire_ms": 5}\n\n'
    lines += b'{"key": "b", "value": {"x": 1}}\n'
    comma = b'key,value,expire_ms\na,1,\n"b ""x""",2,99\n'
    parquet, stream, file = io.BytesIO(), io.BytesIO(), io.BytesIO()
    table = _table()
    pq.write_table(table, parquet)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    contents = (lines, comma, parquet.getvalue(), stream.getvalue(), file.getvalue())
    kinds = (0, 1, 2, 3, 3)
    return [
        bytes([kind | columns << 2]) + data for kind, data in zip(kinds, contents, strict=True) for columns in range(5)
    ]


def _mutate_file(rng: random.Random, data: bytes) -> bytes:
    change = any_of(words_mutation((*JSON_WORDS, b"\n", b",", b'"', b"\xef\xbb\xbf", b"\r", b"key")), mutate_bytes)
    return bytes([rng.randrange(256)]) + data[1:] if rng.random() < 0.05 else data[:1] + change(rng, data[1:])


def _journal(data: bytes) -> None:
    file = folder() / "imported"
    file.write_bytes(b"x")
    journal = ImportJournal(file, "memory:///db")
    journal.store(3, 4)
    notes = json.loads(journal.path.read_bytes())
    try:
        changed = json.loads(data)
    except (ValueError, RecursionError):
        changed = None
    if isinstance(changed, dict):
        data = json.dumps({**notes, **changed}).encode()
    journal.path.write_bytes(data)
    found = journal.load()
    if found is not None:
        may_run(found)


_CODECS = (BytesCodec(), TextCodec(), IntCodec(), StructCodec(">IH"), JsonCodec(), MsgpackCodec())


def _codec(data: bytes) -> None:
    """Decode a key or value as each codec of the library does; and as each format of an export."""
    readers: list[Callable[[bytes], object]] = [codec.decode for codec in _CODECS]
    readers += [decoder_of(each) for each in ValueFormat]
    for read in readers:
        try:
            read(data)
        except (CorruptionError, InvalidRequestError, ValueError):
            continue


def _arrow_rows() -> list[bytes]:
    row = {
        "text": "x" * 9,
        "list": [1, 2],
        "object": {"a": b"b", "c": [1.5]},
        "time": datetime(2020, 1, 1, tzinfo=UTC),
        "decimal": Decimal("1.50"),
    }
    compressed, batch = io.BytesIO(), _table().to_batches()[0].slice(2, 1)
    with pa.ipc.new_stream(compressed, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    return [encode_row(row), encode_row({"number": 1}), as_stream(batch), compressed.getvalue()]


def _operators(data: bytes) -> None:
    """Merge operands that other programs wrote; any error of an operator is a failed merge."""
    operands = data.split(b"\0\0")
    for operator in BUILT_IN.values():
        with suppress(Exception):
            operator(b"k", operands[0], operands[1:] or [b""])


def _journals() -> list[bytes]:
    return [b'{"rows": 3, "pid": 1}']


def _operands() -> list[bytes]:
    packed = bytes(msgpack.packb([b"a"]) or b"")
    return [b"1" * 8 + b"\0\0" + b"2" * 8, b"[1]\0\0[2]", packed + b"\0\0" + packed]


def targets() -> list[Target]:
    kv = tuple(
        f"shale_cli.commands.kv.{name}" for name in ("row_files", "row_import", "row_layout", "row_arrow", "arrow_row")
    )
    invalid = (InvalidRequestError,)
    return [
        Target("import file", _import, _files, invalid, kv, _mutate_file, weight=2),
        Target(
            "import journal",
            _journal,
            lambda: [b'{"rows": 3, "pid": 1}'],
            invalid,
            ("shale_cli.commands.kv.import_journal",),
            JSON_MUTATION,
        ),
        Target(
            "codecs",
            _codec,
            lambda: [b'{"a": 1}', bytes(msgpack.packb({"a": 1}) or b""), bytes(8), "é".encode(), *_arrow_rows()],
            (),
            (
                *("shale.codecs.documents", "shale.codecs.plain", "shale.engine.arrow.compressed"),
                *("shale_cli.commands.kv.arrow_bounds", "shale_cli.commands.kv.arrow_row"),
            ),
            any_of(mutate_msgpack, JSON_MUTATION, mutate_bytes),
        ),
        Target(
            "merge operands",
            _operators,
            lambda: [
                b"\0".join((bytes(8), b"\0" + bytes(8))),
                b'{"a": 1}\0\0{"b": 2}',
                bytes(msgpack.packb([b"a"]) or b"") * 2,
            ],
            (),
            ("shale.merge_operators",),
            any_of(mutate_msgpack, mutate_bytes),
        ),
    ]
