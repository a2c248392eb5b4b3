"""Reads Parquet files, Arrow IPC files and streams, and writes Parquet and streams, one batch at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shale.errors import InvalidRequestError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise InvalidRequestError("Parquet and Arrow need the package pyarrow: pip install 'shale[arrow]'") from None

from shale.engine.arrow.batches import SCHEMA, TIMESTAMP
from shale_cli.commands.kv.arrow_row import TOO_LARGE, UNREADABLE, as_stream, checked, is_of_nanoseconds
from shale_cli.commands.kv.file_kind import ARROW_FILE, first_bytes
from shale_cli.commands.kv.record_columns import column_names, require_known
from shale_cli.commands.kv.row_layout import MalformedRow, RowLayout, ValueFormat, encoder_of, put_of
from shale_cli.commands.kv.row_writer import RowChange

if TYPE_CHECKING:
    from shale.engine.scan.scan import Scan
    from shale_cli.framework.output.progress import OnProgress

_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_SHARING = ("dictionary", "string_view", "binary_view", "list_view", "large_list_view")
"""Kinds of types in ``pa.types`` whose slices have the data of the whole array."""
_GROUP_BYTES = 32 << 20
"""Size of a row group, and so roughly the memory of an export."""


def open_writer(target: BinaryIO, schema: Any, format_: str) -> AbstractContextManager[Any]:
    """Open a Parquet file or an Arrow stream for writing; it has ``write_table``."""
    if format_ == "parquet":
        return pq.ParquetWriter(target, schema, compression="zstd")  # type: ignore[no-any-return]
    return pa.ipc.new_stream(target, schema)  # type: ignore[no-any-return]


async def write(scan: "Scan", target: BinaryIO, format_: str, layout: RowLayout, on_progress: "OnProgress") -> int:
    """Write the rows of a scan, with keys and values as they are, and return their number."""
    schema = pa.schema([field.with_name(_renamed(field.name, layout)) for field in SCHEMA])
    rows, held, held_bytes = 0, [], 0
    with open_writer(target, schema, format_) as writer:
        async for batch in scan.arrow_batches():
            held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            held_bytes += batch.nbytes
            rows += batch.num_rows
            if held_bytes >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held, schema=schema))
                held, held_bytes = [], 0
            on_progress(rows)
        if held:
            writer.write_table(pa.Table.from_batches(held, schema=schema))
    return rows


class RecordTable:
    """Writes records as rows of a Parquet file or an Arrow stream; the first records decide the columns."""

    def __init__(self, target: BinaryIO, format_: str) -> None:
        self._target = target
        self._format = format_
        self._writer: Any = None
        self._schema: Any = None

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records.

        Raises:
            InvalidRequestError: a later record has a column or a type that the first ones have not.
        """
        try:
            if self._schema is None:
                names = column_names(records, within_objects=True)
                table = pa.table({name: _column([record.get(name) for record in records]) for name in names})
                self._schema = table.schema
                self._require_readable()
                self._writer = open_writer(self._target, self._schema, self._format).__enter__()
            else:
                require_known(records, self._schema.names)
                columns = [_column([record.get(each.name) for record in records], each.type) for each in self._schema]
                table = pa.table(columns, schema=self._schema)
            self._writer.write_table(table)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise InvalidRequestError(f"the rows do not fit into columns: {error}; use ndjson") from error

    def _require_readable(self) -> None:
        """Require that a file with these columns can be read: Parquet writes what is nested deeper than it reads."""
        if self._format != "parquet":
            return
        try:
            with pa.BufferOutputStream() as sink:
                pq.write_metadata(self._schema, sink)
                pq.read_schema(pa.BufferReader(sink.getvalue()))
        except OSError as error:
            raise InvalidRequestError(f"Parquet cannot hold these columns: {error}; use ndjson") from error

    def close(self) -> None:
        """Complete the file, also one without rows."""
        if self._writer is None:
            self._writer = open_writer(self._target, pa.schema([]), self._format).__enter__()
        self._writer.close()


def _column(values: list[Any], type_: Any = None) -> Any:
    """Return values as a column; those that are Arrow scalars keep their type.

    Raises:
        TypeError: the column cannot hold a value as it is.
        ArrowException: it has no type.
        OverflowError: an integer has no type.
    """
    types = {value.type for value in values if isinstance(value, pa.Scalar) and not pa.types.is_null(value.type)}
    if types and (types == {type_} or (type_ is None and len(types) == 1)):
        return pa.array([value if value is not None and value.is_valid else None for value in values], *types)
    all_types = types if type_ is None else {*types, type_}
    if types and not all(pa.types.is_integer(each) or pa.types.is_floating(each) for each in all_types):
        raise TypeError(" and ".join(sorted(map(str, all_types))))
    values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    column = pa.array(values, type_)
    shown = column.to_pylist()
    if shown != values or _holds(column.type, ("floating",)):  # which take True for 1
        for value, kept in zip(values, shown, strict=True):
            _require_same(value, kept, column.type)
    return column


def _require_same(value: Any, kept: Any, type_: Any) -> None:
    """Require that a column has not cut a value: Arrow drops fractions, and fields of objects that are new."""
    if isinstance(value, Mapping) and isinstance(kept, Mapping):
        for name, each in value.items():
            _require_same(each, kept.get(name), type_)
    elif isinstance(value, list) and isinstance(kept, list) and len(value) == len(kept):
        for each, other in zip(value, kept, strict=True):
            _require_same(each, other, type_)
    elif isinstance(value, bool) != isinstance(kept, bool) or (
        value != kept and (value == value or kept == kept)  # noqa: PLR0124 - but not NaN
    ):
        raise TypeError(f"{value!r:.60} is not of type {type_}")


def read(
    stream: BinaryIO, file: Path, format_: str, layout: RowLayout, rows_at_once: int
) -> tuple[Iterator[RowChange], int | None]:
    """Return the rows of a file, and their number if the file tells it.

    Without options the columns are ``key`` and ``value``, and ``expire_ts`` if there is one.

    Raises:
        InvalidRequestError: the file has another format, a column is missing or unreadable, or a key or value is null.
    """
    try:
        if format_ == "parquet":
            parquet = pq.ParquetFile(stream)
            schema, total = parquet.schema_arrow, parquet.metadata.num_rows
            wanted = _wanted(schema.names, layout)
            batches = parquet.iter_batches(rows_at_once, columns=wanted)
        elif first_bytes(stream).startswith(ARROW_FILE):
            schema, total, batches = _open_arrow_file(stream, file)
        else:
            reader = pa.ipc.open_stream(stream)
            schema, total, batches = reader.schema, None, checked(reader)
        layout.require(schema.names, str(file))
    except InvalidRequestError:
        stream.close()
        raise
    except (*UNREADABLE, ValueError) as error:  # names of columns that are not UTF-8 are a ValueError
        stream.close()
        raise InvalidRequestError(f"{file}: {str(error) or TOO_LARGE}") from error
    return _rows_of(batches, stream, file, layout, rows_at_once), total


def _open_arrow_file(stream: BinaryIO, file: Path) -> tuple[Any, int | None, Iterator[Any]]:
    """Return the schema, the number of rows and the batches of an Arrow IPC file."""
    if not stream.seekable():
        raise InvalidRequestError(f"{file}: an Arrow IPC file cannot be read from a pipe: name the file")
    reader = pa.ipc.open_file(stream)
    batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    return reader.schema, None, checked(batches)


def _renamed(name: str, layout: RowLayout) -> str:
    return {"key": layout.key_name, "value": layout.value_name}.get(name, name)


def _wanted(names: Sequence[str], layout: RowLayout) -> list[str] | None:
    if layout.value_format is not None:
        return None
    wanted = [layout.key_name, layout.value_name, *(["expire_ts"] if layout.is_default else [])]
    return [name for name in wanted if name in names]


def _rows_of(
    batches: Iterator[Any], stream: BinaryIO, file: Path, layout: RowLayout, rows_at_once: int
) -> Iterator[RowChange]:
    done = 0
    try:
        with stream:
            for batch in batches:
                for start in range(0, batch.num_rows, rows_at_once):
                    for row in _rows(batch.slice(start, rows_at_once), layout):
                        done += 1
                        yield put_of(*row)
    except UNREADABLE as error:
        raise MalformedRow(f"{file}: {str(error) or TOO_LARGE}") from error
    except ValueError as error:
        raise MalformedRow(f"{file}, row {done}: {error}") from error


def _rows(batch: Any, layout: RowLayout) -> Iterator[tuple[bytes, bytes, int | None]]:
    names = batch.schema.names
    keys = _as_bytes(batch, layout.key_name)
    if layout.value_format is None:
        values = _as_bytes(batch, layout.value_name)
    else:
        values = _encoded(batch.drop_columns([layout.key_name]), layout.value_format)
    expire_times: list[int | None] = [None] * len(keys)
    if layout.is_default and "expire_ts" in names:
        expire_times = batch.column(names.index("expire_ts")).cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    return zip(keys, values, expire_times, strict=True)


def _as_bytes(batch: Any, name: str) -> list[Any]:
    """Return a column as bytes: text in UTF-8, numbers and times as text.

    Raises:
        MalformedRow: it has a type that has no text.
    """
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(test(column.type) for test in _BINARY):
        try:
            column = column.cast(pa.string())
        except pa.ArrowNotImplementedError:
            raise MalformedRow(f"column {name!r} is {column.type}, which has no text: use --value-format") from None
    found: list[Any] = column.cast(pa.binary()).to_pylist()
    return found


def _encoded(columns: Any, value_format: ValueFormat) -> list[bytes]:
    if value_format is ValueFormat.ARROW_ROW:
        return list(_arrow_rows(columns))
    encode: Callable[[Mapping[str, Any]], bytes] = encoder_of(value_format)
    try:
        rows = _with_text_of_nanoseconds(columns).to_pylist()
    except (OverflowError, ValueError) as error:
        raise MalformedRow(f"a time is not in the years 1 to 9999: {error}") from None
    except LookupError as error:
        raise MalformedRow(f"unknown time zone: {error}") from None
    return [encode(fields) for fields in rows]


def _arrow_rows(columns: Any) -> Iterator[bytes]:
    """Yield each row as a stream of its own.

    A slice of dictionaries and views is written with the data of all rows, so those columns are made again.
    """
    shared = [(place, field) for place, field in enumerate(columns.schema) if _holds(field.type, _SHARING)]
    for number in range(columns.num_rows):
        row = columns.slice(number, 1)
        for place, field in shared:
            row = row.set_column(place, field, pa.array([columns.column(place)[number]], field.type))
        yield as_stream(row)


def _holds(type_: Any, kinds: Sequence[str]) -> bool:
    """Return whether a type is of one of these kinds, or contains one."""
    return any(getattr(pa.types, f"is_{kind}")(type_) for kind in kinds) or any(
        _holds(type_.field(place).type, kinds) for place in range(type_.num_fields)
    )


def _with_text_of_nanoseconds(batch: Any) -> Any:
    """Replace times that Python cannot hold: columns of nanoseconds, by their text."""
    for number, each in enumerate(batch.schema):
        if is_of_nanoseconds(each.name, each.type):
            batch = batch.set_column(number, each.name, batch.column(number).cast(pa.string()))
    return batch
