"""Imports of files whose rows are known: what the database has afterwards, and which row an error names."""

import base64
import csv
import io
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from shale.engine.db import Db
from shale.env import Env, InlineCpu
from shale.errors import InvalidRequestError
from shale.store.memory import MemoryStore
from shale_cli.commands.kv.import_journal import ImportJournal
from shale_cli.commands.kv.row_import import import_rows, resumed, source
from shale_cli.commands.kv.row_layout import MalformedRow, RowLayout, ValueFormat, decoder_of
from shale_cli.commands.kv.writing import WriterChoice
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from shale_cli.framework.session import CliSession
from tests.clocks import START_MS, ManualClock
from tests.fuzz import loop
from tests.fuzz.folder import folder
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target

_FORMATS = ("ndjson", "csv", "parquet", "arrow")
_VALUE_FORMATS = (None, ValueFormat.JSON, ValueFormat.MSGPACK, ValueFormat.ARROW_ROW)
_URL = "memory:///db"
_KEY_MAX = 65_535
_ROWS_MAX = 60
_ROWS_READ_FIRST = 1000
"""Rows that an import reads before it opens the database: an error among them leaves no database."""
_FILLER = [(f"f{number}", "v", None) for number in range(_ROWS_READ_FIRST)]
_PLACE = re.compile(r"(line|row) (\d+)")
_DONE = re.compile(r"imported (\d+) rows before it: correct it, and give --skip (\d+)")
_TEXTS = ("a", "b", "é", 'x "y",z', "l\nm", "", "61", "YQ==", "b'q'", "\\", " c", "a" * 300)
_KEYS = ("a", "b", "c", "é", "k" * 300, "", "x" * (_KEY_MAX + 1))
_TIMES = (None, None, None, 1, START_MS, START_MS + 1, 4_000_000_000_000)


class _Row(NamedTuple):
    key: bytes
    value: bytes
    expire_ms: int | None


class _Session:
    """What an import takes of the session of a command: a database in memory."""

    def __init__(self, store: MemoryStore, output: Output) -> None:
        self.env = Env(ManualClock(), random.Random(3), InlineCpu())
        self.output = output
        self.writer_args: Mapping[str, Any] = {
            "path": "db",
            "store": store,
            "env": self.env,
            "flush_interval": 0,
        }


def _import(data: bytes) -> None:
    """The input: format, format of values, options, rows to note as durable, and rows.

    The options: whether keys are base64, and whether a thousand other rows come first.
    """
    try:
        kind, values, options, noted, given = msgpack.unpackb(data)
        rows = [(str(key), str(value), time) for key, value, time in given[:_ROWS_MAX]]
        rows = [*(_FILLER if options & 2 else ()), *rows]
        kind, values, noted = kind % len(_FORMATS), values % len(_VALUE_FORMATS), noted % (len(rows) + 1)
        if not all(time is None or (type(time) is int and 0 < time < 1 << 42) for _, _, time in rows):
            return
        "".join(key + value for key, value, _ in rows).encode()
    except (ValueError, TypeError, msgpack.UnpackException):
        return
    layout = RowLayout(key="key", value_format=_VALUE_FORMATS[values]) if _VALUE_FORMATS[values] else RowLayout()
    form = _FORMATS[kind]
    file = folder() / "known"
    file.write_bytes(_WRITERS[form](rows, is_base64=bool(options & 1) and layout.is_default))
    loop.run(_checked(file, form, layout, rows, noted))


async def _checked(
    file: Path, form: str, layout: RowLayout, rows: Sequence[tuple[str, str, int | None]], noted: int
) -> None:
    output = Output(Format.JSON, KeyEncoding.UTF8)
    store = MemoryStore()
    session = cast("CliSession", _Session(store, output))
    wanted = [_Row(key.encode(), value.encode(), time if layout.is_default else None) for key, value, time in rows]
    bad = next((at for at, row in enumerate(wanted) if not 0 < len(row.key) <= _KEY_MAX), None)
    found = source(output, file, form, layout=layout, skip=0)
    try:
        done = await import_rows(session, found, WriterChoice(), lambda *_: None)
    except MalformedRow as error:
        done_rows = _rows_of_error(str(error), file, bad)
        if not done_rows and store.objects:
            raise Difference(f"a malformed file creates a database: {sorted(store.objects)}") from error
        await _check_rows(store, layout, wanted[:done_rows])
        _check_skipped(output, file, form, layout, str(error), done_rows)
        return
    except InvalidRequestError as error:
        if rows:
            raise Difference(f"a file of rows is refused: {error}") from error
        return
    if bad is not None:
        raise Difference(f"row {bad} is taken, whose key has {len(wanted[bad].key)} bytes")
    expired = sum(_is_expired(row) for row in wanted)
    require_equal("imported and expired rows", (done.rows, done.expired), (len(wanted) - expired, expired))
    if noted % 2:
        await _check_resumed(session, file, form, layout, wanted, noted)
    await _check_rows(store, layout, wanted)


async def _check_resumed(
    session: CliSession, file: Path, form: str, layout: RowLayout, wanted: list[_Row], noted: int
) -> None:
    """Import again from some row on, as after a kill, which leaves the same rows in the database."""
    journal = ImportJournal(file, _URL)
    journal.store(noted, None)
    found = resumed(session.output, file, form, layout, journal)
    done = await import_rows(session, found, WriterChoice(), lambda *_: None)
    expired = sum(_is_expired(row) for row in wanted[noted:])
    counts = (done.rows + done.found, done.expired)
    require_equal("rows of a resumed import", counts, (len(wanted) - noted - expired, expired))
    if journal.path.exists():
        raise Difference("the notes of a complete import are left")


def _rows_of_error(text: str, file: Path, bad: int | None) -> int:
    """Return how many rows an error says to have imported; it names the file, and the row if rows are counted."""
    done, place = _DONE.search(text), _PLACE.search(text)
    if bad is None:
        raise Difference(f"a row of a valid file is refused: {text[:300]}")
    if str(file) not in text or place is None:
        raise Difference(f"an error names neither file nor row: {text[:300]}")
    if place[1] == "row" and int(place[2]) != bad + 1:
        raise Difference(f"an error names another row than {bad + 1}: {text[:300]}")
    if bad < _ROWS_READ_FIRST:
        return 0
    # The rows of the batch that the bad one would be in are not written.
    if done is None or done[1] != done[2] or not bad - _ROWS_READ_FIRST < int(done[1]) <= bad:
        raise Difference(f"an error counts other rows than {bad}: {text[-200:]}")
    return int(done[1])


def _check_skipped(output: Output, file: Path, form: str, layout: RowLayout, text: str, done: int) -> None:
    """The rows after those that were imported have the row that the error names."""
    try:
        list(source(output, file, form, layout=layout, skip=done).rows)
    except MalformedRow as error:
        require_equal("the row of an error and the next row", str(error), text.partition("; imported ")[0])
        return
    raise Difference("the row of an error is skipped with the rows before it")


async def _check_rows(store: MemoryStore, layout: RowLayout, wanted: Sequence[_Row]) -> None:
    last = {row.key: row for row in wanted if not _is_expired(row)}
    env = Env(ManualClock(), random.Random(4), InlineCpu())
    if not last:
        return
    async with Db.open("db", store=store, env=env, writer_checkpoint=False) as db:
        found = {row.key: row async for row in db.scan()}
    require_equal("keys after an import", set(found), set(last))
    decode = None if layout.value_format is None else decoder_of(layout.value_format)
    for key, row in last.items():
        value = found[key].value
        shown = dict(decode(value)).get("value") if decode is not None else value
        plain = row.value.decode() if decode is not None else row.value
        require_equal("a row after an import", (shown, found[key].expire_ts), (plain, row.expire_ms))


def _is_expired(row: _Row) -> bool:
    return row.expire_ms is not None and row.expire_ms <= START_MS


def _lines(rows: Sequence[tuple[str, str, int | None]], *, is_base64: bool) -> bytes:
    lines = []
    for key, value, time in rows:
        record: dict[str, Any] = {"key": key, "value": value}
        if is_base64:
            record = {"key_b64": _b64(key), "value_b64": _b64(value)}
        lines.append(json.dumps(record if time is None else {**record, "expire_ms": time}))
    return "\n".join(lines).encode()


def _csv(rows: Sequence[tuple[str, str, int | None]], *, is_base64: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["key_b64", "value_b64", "expire_ms"] if is_base64 else ["key", "value", "expire_ms"])
    for key, value, time in rows:
        fields = [_b64(key), _b64(value)] if is_base64 else [key, value]
        writer.writerow([*fields, "" if time is None else time])
    return text.getvalue().encode()


def _table(rows: Sequence[tuple[str, str, int | None]], *, is_base64: bool) -> Any:
    """Return columns of texts, or of bytes."""
    keys, values, times = zip(*rows, strict=True) if rows else ((), (), ())
    kind = pa.binary() if is_base64 else pa.string()
    encoded = [[each.encode() if is_base64 else each for each in column] for column in (keys, values)]
    columns = [pa.array(column, kind) for column in encoded]
    return pa.table({"key": columns[0], "value": columns[1], "expire_ts": pa.array(times, pa.timestamp("ms"))})


def _parquet(rows: Sequence[tuple[str, str, int | None]], *, is_base64: bool) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(rows, is_base64=is_base64), sink, row_group_size=7)
    return sink.getvalue()


def _arrow(rows: Sequence[tuple[str, str, int | None]], *, is_base64: bool) -> bytes:
    sink, table = io.BytesIO(), _table(rows, is_base64=is_base64)
    open_writer = pa.ipc.new_file if len(rows) % 2 else pa.ipc.new_stream
    with open_writer(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return sink.getvalue()


_WRITERS: Mapping[str, Any] = {"ndjson": _lines, "csv": _csv, "parquet": _parquet, "arrow": _arrow}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _packed(*parts: Any) -> bytes:
    return bytes(msgpack.packb(list(parts)) or b"")


def _row(rng: random.Random) -> list[Any]:
    key = rng.choice(_KEYS[:5]) if rng.random() < 0.98 else rng.choice(_KEYS)
    return [key, rng.choice(_TEXTS), rng.choice(_TIMES)]


def _file(rng: random.Random) -> bytes:
    rows = [_row(rng) for _ in range(rng.choice((0, 1, 3, 10, 30)))]
    options = rng.randrange(2) | 2 * (rng.random() < 0.03)
    return _packed(rng.randrange(4), rng.choice((0, 0, 1, 2, 3)), options, rng.randrange(2000), rows)


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Make other rows, or change a row or how the file is written."""
    try:
        kind, values, options, noted, rows = msgpack.unpackb(data)
        match rng.randrange(4):
            case 0:
                return _file(rng)
            case 1:
                kind, values, options = rng.randrange(4), rng.randrange(4), rng.randrange(2)
            case 2:
                rows.insert(rng.randrange(len(rows) + 1), _row(rng))
            case _:
                row = rows[rng.randrange(len(rows))]
                at = rng.randrange(2)
                row[at] = mutate_bytes(rng, row[at].encode())[:_KEY_MAX].decode("latin-1")
        return _packed(kind, values, options, noted, rows)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return _file(rng)


def _seeds() -> list[bytes]:
    rows = [["a", "1", None], ["b", "2", START_MS + 5], ["a", "3", None], ["c", "4", 5]]
    bad = [*rows, ["", "5", None], ["d", "6", None]]
    few = [
        _packed(kind, values, values & 1, kind, each)
        for each in (rows, bad)
        for kind in range(len(_FORMATS))
        for values in range(len(_VALUE_FORMATS))
    ]
    for each in few[: len(few) // 2]:
        _import(each)  # the first import of a format loads modules, for longer than an input may take
    return [*few, *(_packed(0, 0, 2, 801, each) for each in (rows, bad))]


def targets() -> list[Target]:
    names = ("row_files", "row_import", "row_layout", "row_arrow", "arrow_row", "writing", "import_journal")
    modules = tuple(f"shale_cli.commands.kv.{name}" for name in names)
    return [Target("import rows", _import, _seeds, (), modules, _mutate, structured=0.95, weight=0.5)]
