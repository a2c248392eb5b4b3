"""Exports keep every value as it is, or say that the format cannot."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from shale_cli.commands.kv.row_layout import to_json
from tests.integration.cli.commands import shale
from tests.integration.cli.goldens import Golden

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


def _row_of(*columns: Any) -> bytes:
    """Return an Arrow stream of one row, whose columns all have one name."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=["v"] * len(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("value_format", ["json", "msgpack", "arrow-row"])
@pytest.mark.parametrize(
    ("first", "last"),
    [("0", "0.75"), ("[1]", "[2.9]"), ('{"a":1}', '{"b":2}'), ("0.5", "true"), ("1", "18446744073709551615")],
)
def test_a_table_does_not_cut_a_value(
    golden: Golden, url: str, tmp_path: Path, value_format: str, first: str, last: str
) -> None:
    """The first thousand rows decide the columns."""
    if value_format == "arrow-row" and len(last) > 10:
        last = "1.5"
    lines = [f'{{"id":"{number:04}","v":{first}}}' for number in range(1000)] + [f'{{"id":"1000","v":{last}}}']
    (tmp_path / "in.ndjson").write_text("\n".join(lines) + "\n")
    options = ("--key", "id", "--value-format", value_format, "-u", url)
    golden.run("kv", "import", str(tmp_path / "in.ndjson"), *options)
    refused = shale("kv", "export", str(tmp_path / "out.parquet"), *options)
    assert refused.returncode == 2
    assert b"the rows do not fit into columns" in refused.stderr
    assert refused.stderr.count(b"\n") == 1
    golden.run("kv", "export", str(tmp_path / "out.ndjson"), *options)
    assert (tmp_path / "out.ndjson").read_bytes() == (tmp_path / "in.ndjson").read_bytes()


def test_csv_keeps_carriage_returns(golden: Golden, url: str, tmp_path: Path) -> None:
    rows = [{"id": "a\rb", "v": "ends\r"}, {"id": "c", "v": "\r"}, {"id": "d\r\n", "v": "e\nf"}]
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    options = ("--key", "id", "--value-format", "json", "-u", url)
    golden.run("kv", "import", str(tmp_path / "in.ndjson"), *options)
    golden.run("kv", "export", str(tmp_path / "out.csv"), *options)
    other = (*options[:-1], f"{url}2")
    golden.run("kv", "import", str(tmp_path / "out.csv"), *other)
    golden.run("kv", "export", str(tmp_path / "back.ndjson"), *other)
    assert (tmp_path / "back.ndjson").read_bytes() == (tmp_path / "in.ndjson").read_bytes()
    assert (tmp_path / "out.csv").read_bytes().endswith(b'"d\r\n","e\nf"\n')


@pytest.mark.parametrize(
    ("value_format", "value", "suffix", "reason"),
    [
        ("json", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "ndjson", "cannot be written as JSON: Recursion limit"),
        ("json", b'{"a":' + b"[" * 250 + b"]" * 250 + b"}", "arrow", "Max recursion depth reached"),
        ("msgpack", b"\x81\xa1a\x81\xc4\x01x\x01", "csv", "cannot be written as JSON: Dict key must be str"),
        ("json", rb'{"a\u001b[31m\nb":{}}', "parquet", r"a\x1b[31m\nb"),
        ("arrow-row", _row_of(pa.array([1]), pa.array([2])), "ndjson", "several columns have one name: v, v"),
        ("arrow-row", _row_of(pa.array([1 << 62], pa.timestamp("s"))), "parquet", "Integer overflow when casting"),
        ("json", b'{"a":' + b"[" * 60 + b"]" * 60 + b"}", "parquet", "too deeply nested"),
        ("arrow-row", _row_of(pa.array([Decimal("1E+3")], pa.decimal128(5, -2))), "parquet", "Scale must be a non-neg"),
        ("arrow-row", _row_of(pa.array([[7]], pa.list_(pa.time64("ns")))), "ndjson", "nanoseconds within"),
        ("json", to_json({str(number): 1 for number in range(10_001)}), "csv", "have more than 10000 columns"),
        ("json", to_json({"a": [{str(number): 1} for number in range(10_000)]}), "arrow", "more than 10000 columns"),
    ],
    ids=[
        "deep in JSON",
        "deep in Arrow",
        "names of bytes",
        "control characters",
        "several columns",
        "far time",
        "deep in Parquet",
        "a decimal of thousands",
        "nanoseconds in a list",
        "many columns",
        "many columns within objects",
    ],
)
def test_values_that_are_refused(
    golden: Golden, url: str, tmp_path: Path, value_format: str, value: bytes, suffix: str, reason: str
) -> None:
    (tmp_path / "value").write_bytes(value)
    golden.run("kv", "put", "k", "--file", str(tmp_path / "value"), "-u", url)
    options = ("--key", "id", "--value-format", value_format, "-u", url)
    refused = shale("kv", "export", str(tmp_path / f"out.{suffix}"), *options)
    assert refused.returncode == 2
    assert reason in refused.stderr.decode()
    assert refused.stderr.count(b"\n") == 1


def test_nanoseconds_are_text(golden: Golden, url: str, tmp_path: Path) -> None:
    table = pa.table(
        {"id": ["a"], "t": pa.array([1_234_567_891], pa.time64("ns")), "s": pa.array([7], pa.timestamp("ns"))}
    )
    with pa.ipc.new_stream(tmp_path / "in.arrow", table.schema) as stream:
        stream.write_table(table)
    options = ("--key", "id", "--value-format", "arrow-row", "-u", url)
    golden.run("kv", "import", str(tmp_path / "in.arrow"), *options)
    golden.run("kv", "export", str(tmp_path / "out.ndjson"), *options)
    row = json.loads((tmp_path / "out.ndjson").read_bytes())
    assert row == {"id": "a", "t": "00:00:01.234567891", "s": "1970-01-01 00:00:00.000000007"}


@pytest.mark.parametrize("kind", ["dictionary", "view", "object"])
def test_an_arrow_row_has_only_its_own_data(golden: Golden, url: str, tmp_path: Path, kind: str) -> None:
    texts = pa.array([f"text of row {number}" for number in range(999)] + [None])
    column = {
        "dictionary": texts.dictionary_encode(),
        "view": texts.cast(pa.string_view()),
        "object": pa.StructArray.from_arrays([texts.dictionary_encode()], ["text"]),
    }[kind]
    table = pa.table({"id": [f"{number:03}" for number in range(1000)], "v": column})
    with pa.ipc.new_stream(tmp_path / "in.arrow", table.schema) as stream:
        stream.write_table(table)
    options = ("--key", "id", "--value-format", "arrow-row", "-u", url)
    golden.run("kv", "import", str(tmp_path / "in.arrow"), *options)
    assert sum(path.stat().st_size for path in (tmp_path / "db").rglob("*")) < 2_000_000
    golden.run("kv", "export", str(tmp_path / "out.arrow"), *options)
    back = pa.ipc.open_stream((tmp_path / "out.arrow").read_bytes()).read_all()
    assert back.schema == table.schema
    assert back.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id":"a","v":' + "[" * 300 + "]" * 300 + "}", "line 1: a value cannot be written as JSON: Recursion limit"),
        ('{"id":"a","n":1234567890123456789,"v":' + "[" * 990 + "]" * 990 + "}", "line 1: maximum recursion depth"),
    ],
    ids=["deep", "deep with a long number"],
)
def test_lines_that_are_refused(url: str, tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "in.ndjson").write_text(line + "\n")
    refused = shale("kv", "import", str(tmp_path / "in.ndjson"), "--key", "id", "--value-format", "json", "-u", url)
    assert refused.returncode == 2
    assert reason in refused.stderr.decode()
    assert refused.stderr.count(b"\n") == 1


def test_an_unknown_time_zone_is_refused(url: str, tmp_path: Path) -> None:
    table = pa.table({"id": ["a"], "v": pa.array([0], pa.timestamp("us", "Unknown/Zone"))})
    with pa.ipc.new_stream(tmp_path / "in.arrow", table.schema) as stream:
        stream.write_table(table)
    refused = shale("kv", "import", str(tmp_path / "in.arrow"), "--key", "id", "--value-format", "json", "-u", url)
    assert refused.returncode == 2
    assert refused.stderr.count(b"\n") == 1
    assert b"Unknown/Zone" in refused.stderr
