"""Import and export of any columns: CSV, JSON lines, Parquet and Arrow, as values in several formats."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.integration.cli.commands import shale
from tests.integration.cli.goldens import Golden, parsed

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

USERS: list[dict[str, Any]] = [
    {"id": "u1", "name": 'Ada, "the first"', "age": 36, "tags": ["a", "b"]},
    {"id": "u2", "name": "Bob\nSmith", "age": None, "tags": []},
    {"id": "ü3", "name": "", "age": 0, "tags": ["c"]},
]
MAPPED = ("--key", "id", "--value-format")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


def write_users(file: Path) -> None:
    match file.suffix:
        case ".ndjson":
            file.write_text("".join(json.dumps(user) + "\n" for user in USERS))
        case ".csv":
            with file.open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(USERS[0])
                writer.writerows([json.dumps(v) if isinstance(v, list) else v for v in user.values()] for user in USERS)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(USERS), file, row_group_size=2)
        case ".arrow":
            table = pa.Table.from_pylist(USERS)
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)


def value_of(golden: Golden, url: str, key: str) -> bytes:
    return golden.run("kv", "get", key, "--raw", "-u", url).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("value_format", ["json", "msgpack", "arrow-row"])
@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet", "arrow"])
def test_all_columns_there_and_back(golden: Golden, url: str, tmp_path: Path, suffix: str, value_format: str) -> None:
    """The columns of CSV are text; all other formats keep their types."""
    file, back = tmp_path / f"users.{suffix}", tmp_path / f"back.{suffix}"
    write_users(file)
    assert parsed(golden.run("kv", "import", str(file), *MAPPED, value_format, "-u", url, "-o", "json"))["rows"] == 3
    golden.run("kv", "export", str(back), *MAPPED, value_format, "-u", url)
    match suffix:
        case "ndjson":
            assert [json.loads(line) for line in back.read_text().splitlines()] == USERS
        case "csv":
            with file.open(newline="") as ours, back.open(newline="") as theirs:
                assert list(csv.reader(ours)) == list(csv.reader(theirs))
        case "parquet":
            assert pq.read_table(back).to_pylist() == USERS
        case "arrow":
            assert pa.ipc.open_stream(back.read_bytes()).read_all().to_pylist() == USERS


@pytest.mark.slow
def test_values_are_what_their_format_says(url: str, tmp_path: Path) -> None:
    file = tmp_path / "users.ndjson"
    write_users(file)
    fields = {name: value for name, value in USERS[0].items() if name != "id"}
    reads: dict[str, Any] = {
        "json": json.loads,
        "msgpack": msgpack.unpackb,
        "arrow-row": lambda data: pa.ipc.open_stream(data).read_all().to_pylist()[0],
    }
    for value_format, read in reads.items():
        assert shale("kv", "import", str(file), *MAPPED, value_format, "-u", url).returncode == 0
        assert read(shale("kv", "get", "u1", "--raw", "-u", url).stdout) == fields


def test_two_columns(golden: Golden, url: str, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([7, 10]), "when": pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * 2), "x": [None, 1]})
    pq.write_table(table, tmp_path / "rows.parquet")
    golden.run("kv", "import", str(tmp_path / "rows.parquet"), "--key", "n", "--value", "when", "-u", url)
    assert value_of(golden, url, "7") == b"2026-01-02 00:00:00.000000Z"
    golden.run("kv", "export", str(tmp_path / "rows.csv"), "--key", "n", "--value", "when", "-u", url)
    with (tmp_path / "rows.csv").open() as stream:
        assert list(csv.reader(stream)) == [["n", "when"], *([n, "2026-01-02 00:00:00.000000Z"] for n in ("10", "7"))]
    golden.run("kv", "export", str(tmp_path / "out.parquet"), "--key", "n", "--value", "when", "-u", url)
    assert pq.read_table(tmp_path / "out.parquet").column_names[:2] == ["n", "when"]
    (tmp_path / "rows.ndjson").write_text('{"k": 1, "v": {"a": [1]}}\n{"k": "2", "v": "text"}\n')
    golden.run("kv", "import", str(tmp_path / "rows.ndjson"), "--key", "k", "--value", "v", "-u", url)
    assert (value_of(golden, url, "1"), value_of(golden, url, "2")) == (b'{"a":[1]}', b"text")


def test_csv_with_any_bytes_and_lifetimes(golden: Golden, url: str, tmp_path: Path) -> None:
    file, other = str(tmp_path / "rows.csv"), f"file://{tmp_path}/other"
    golden.run("kv", "put", "00ff", "0a22", "--key-format", "hex", "--ttl", "1h", "-u", url)
    golden.run("kv", "put", "01", "", "--key-format", "hex", "-u", url)
    assert "is not UTF-8" in shale("kv", "export", str(tmp_path / "x.csv"), "-u", url).stderr.decode()
    golden.run("kv", "export", file, "--key-format", "hex", "-u", url)
    golden.run("kv", "import", file, "--key-format", "hex", "-u", other)
    scans = [json.loads(golden.run("kv", "get", "00ff", "--key-format", "hex", "-u", at)) for at in (url, other)]
    assert scans[0]["value_b64"] == scans[1]["value_b64"]
    assert scans[0]["expire_ms"] == scans[1]["expire_ms"]
    assert json.loads(golden.run("kv", "scan", "--count", "-u", other))["rows"] == 2


@pytest.mark.slow
def test_pipes(url: str, tmp_path: Path) -> None:
    """Every format but Parquet can be written to stdout and read from stdin."""
    file = tmp_path / "users.ndjson"
    write_users(file)
    assert shale("kv", "import", str(file), *MAPPED, "json", "-u", url).returncode == 0
    for name in ("ndjson", "csv", "arrow"):
        options = (*MAPPED, "json", "--format", name)
        written = shale("kv", "export", "-", *options, "-u", url)
        assert written.returncode == 0, written.stderr
        read = shale("kv", "import", "-", *options, "-u", f"{url}-{name}", stdin=written.stdout)
        assert json.loads(read.stdout)["rows"] == 3
        again = shale("kv", "export", "-", *options, "-u", f"{url}-{name}")
        assert again.stdout == written.stdout


def test_what_json_lacks_is_text(golden: Golden, url: str, tmp_path: Path) -> None:
    table = pa.table({"id": ["a"], "price": [Decimal("1.50")], "blob": [b"\xff"], "at": [datetime(2026, 1, 2)]})  # noqa: DTZ001
    pq.write_table(table, tmp_path / "rows.parquet")
    golden.run("kv", "import", str(tmp_path / "rows.parquet"), *MAPPED, "json", "-u", url)
    assert json.loads(value_of(golden, url, "a")) == {"price": "1.50", "blob": "/w==", "at": "2026-01-02T00:00:00"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "options", "reason"),
    [
        ("a.csv", "x,y\n1,2\n", (), "there is no column 'key', only x, y: give --key, and --value or --value-format"),
        ("a.csv", "x,y\n1,2\n", ("--key", "x"), "no column 'value'"),
        ("a.csv", "x,y\n1,2\n3\n", ("--key", "x", "--value", "y"), "line 3: 1 fields, the first line names 2"),
        ("a.csv", 'x,y\n1,"2\n', ("--key", "x", "--value", "y"), "line 2: unexpected end of data"),
        ("a.csv", "", (), "there is no column 'key', only none"),
        ("a.csv", "key,value,expire_ms\na,b,soon\n", (), "line 2: expire_ms is not a number"),
        ("a.ndjson", '{"x": null}\n', ("--key", "x", "--value-format", "json"), "line 1: x is null or missing"),
        ("a.ndjson", "{}\n", ("--key", "x", "--value", "y"), "line 1: x is null or missing"),
        ("a.ndjson", "{}\n", ("--value", "y", "--value-format", "json"), "give either --value or --value-format"),
        ("a.arrow", "nonsense", (), "a.arrow: "),
        ("a.csv", "key,value\n,1\n", (), "a.csv, line 2: key of 0 bytes: must be between 1 and 65535"),
        ("a.ndjson", '{"key": "a", "value": 5}\n', (), "line 1: value is not text: give --key, and --value"),
        ("a.csv", "id,n,n\n1,2,3\n", ("--key", "id", "--value-format", "json"), "several columns 'n'"),
        ("a.csv", "key,value,key\n1,2,3\n", (), "several columns 'key'"),
        ("a.csv", b"key,value\na,1\nb,\xe9\n", (), "byte 0xe9 is not UTF-8: convert the file"),
        ("a.csv", "key,value\na,1\n".encode("utf-16"), (), "it is UTF-16: convert it to UTF-8"),
        ("a.csv", b"PAR1....", (), "it is not csv: give --format parquet"),
        ("a.csv.gz", b"\x1f\x8b\x08", (), "compressed with gzip: gunzip -c "),
        ("a.tsv", "key\tvalue\na\t1\n", (), "separate them with commas"),
        (
            "a.json",
            '[\n{"key": "a", "value": "1"}]',
            (),
            "line 1: not an object: a JSON array has no lines; jq -c '.[]'",
        ),
        (
            "a.ndjson",
            '{"id": 18446744073709551616, "n": 1}\n',
            ("--key", "id", "--value-format", "json"),
            "line 1: the number 18446744073709551616 has more than 64 bits: write it as text",
        ),
        (
            "a.ndjson",
            '{"id": "a"}\n{"id": "b", "n": {"x": 9223372036854775808}}\n',
            ("--key", "id", "--value-format", "arrow-row"),
            "line 2: n has an integer above 9223372036854775807: write it as text",
        ),
        (
            "a.ndjson",
            '{"id": "a", "n": [1, "x"]}\n',
            ("--key", "id", "--value-format", "arrow-row"),
            "line 1: n has no type of Arrow: Could not convert",
        ),
    ],
)
def test_files_that_are_refused(
    url: str, tmp_path: Path, name: str, content: str | bytes, options: tuple[str, ...], reason: str
) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    refused = shale("kv", "import", str(tmp_path / name), *options, "-u", url)
    assert refused.returncode == 2
    assert reason in refused.stderr.decode()
    assert refused.stderr.count(b"\n") == 1
    assert not (tmp_path / "db").exists()


def test_an_arrow_file_is_read_like_a_stream(golden: Golden, url: str, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(USERS)
    with pa.ipc.new_file(tmp_path / "users.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    imported = parsed(golden.run("kv", "import", str(tmp_path / "users.arrow"), *MAPPED, "json", "-u", url))
    assert imported["rows"] == 3
    assert json.loads(value_of(golden, url, "u2")) == {"name": "Bob\nSmith", "age": None, "tags": []}


def test_columns_of_any_type(golden: Golden, url: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array([b"\xff", b"b"]).dictionary_encode(),
            "v": pa.array([b"\xfe", b"1"], pa.binary_view()),
            "at": pa.array([1, None], pa.timestamp("ns")),
        }
    )
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as stream:
        stream.write_table(table)
    golden.run("kv", "import", str(tmp_path / "a.arrow"), "--key", "k", "--value", "v", "-u", url)
    assert shale("kv", "get", "ff", "--key-format", "hex", "--raw", "-u", url).stdout == b"\xfe"
    golden.run("kv", "import", str(tmp_path / "a.arrow"), *("--key", "k", "--value-format", "json"), "-u", url)
    assert json.loads(value_of(golden, url, "b")) == {"v": "MQ==", "at": None}


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet", "arrow"])
def test_a_row_that_is_only_a_key_comes_back(golden: Golden, url: str, tmp_path: Path, suffix: str) -> None:
    options = ("--key", "id", "--value-format", "arrow-row", "-u", url)
    (tmp_path / "keys.ndjson").write_text('{"id":"a"}\n{"id":"b"}\n')
    golden.run("kv", "import", str(tmp_path / "keys.ndjson"), *options)
    golden.run("kv", "export", str(tmp_path / f"out.{suffix}"), *options)
    golden.run("kv", "import", str(tmp_path / f"out.{suffix}"), *options)
    golden.run("kv", "export", str(tmp_path / "back.ndjson"), *options)
    assert (tmp_path / "back.ndjson").read_text() == (tmp_path / "keys.ndjson").read_text()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_arrow_rows_keep_their_types(golden: Golden, url: str, tmp_path: Path, suffix: str) -> None:
    """Also types that Python has not, and columns of which the first rows are null."""
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "map": pa.array([None, [("x", 1)], []], pa.map_(pa.string(), pa.int32())),
            "list": pa.array([None, [1, None], []], pa.list_(pa.int16())),
            "price": pa.array([Decimal("1.50"), None, Decimal(2)], pa.decimal128(9, 2)),
            "at": pa.array([1, None, 2], pa.timestamp("ns", tz="Europe/Berlin")),
            "big": pa.array([2**64 - 1, None, 0], pa.uint64()),
            "none": pa.array([None, None, None], pa.int8()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    golden.run("kv", "import", str(tmp_path / "rows.parquet"), *MAPPED, "arrow-row", "-u", url)
    back = tmp_path / f"back.{suffix}"
    golden.run("kv", "export", str(back), *MAPPED, "arrow-row", "-u", url)
    found = pq.read_table(back) if suffix == "parquet" else pa.ipc.open_stream(back.read_bytes()).read_all()
    assert found.equals(pq.read_table(tmp_path / "rows.parquet"))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["a", None], "rows.parquet, row 2: the key or value is null"),
        (["a", ""], "rows.parquet, row 2: key of 0 bytes"),
        ([[1], [2]], "column 'k' is list<element: int64>, which has no text"),
    ],
)
def test_columns_that_are_refused(url: str, tmp_path: Path, column: list[Any], reason: str) -> None:
    pq.write_table(pa.table({"k": column, "v": ["1", "2"]}), tmp_path / "rows.parquet")
    refused = shale("kv", "import", str(tmp_path / "rows.parquet"), "--key", "k", "--value", "v", "-u", url)
    assert refused.returncode == 2
    assert reason in refused.stderr.decode()
    assert not (tmp_path / "db").exists()


def test_a_time_that_python_cannot_hold_is_refused(url: str, tmp_path: Path) -> None:
    times = pa.array([0, 1 << 60], pa.timestamp("us"))
    pq.write_table(pa.table({"id": ["a", "b"], "at": times}), tmp_path / "rows.parquet")
    refused = shale("kv", "import", str(tmp_path / "rows.parquet"), *MAPPED, "json", "-u", url)
    assert refused.returncode == 2
    assert "rows.parquet, row 0: a time is not in the years 1 to 9999" in refused.stderr.decode()


def test_a_byte_order_mark_of_json_lines_is_skipped(golden: Golden, url: str, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\xef\xbb\xbf{"key": "a", "value": "1"}\n')
    golden.run("kv", "import", str(tmp_path / "a.ndjson"), "-u", url)
    assert value_of(golden, url, "a") == b"1"


def test_a_field_with_the_name_of_the_key_is_not_lost(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("kv", "put", "a", '{"key": "x"}', "-u", url)
    refused = shale("kv", "export", "-", "--value-format", "json", "-u", url)
    assert b"the value of key a has a field 'key', too: give --key with another name" in refused.stderr
    written = shale("kv", "export", "-", "--key", "id", "--value-format", "json", "-u", url)
    assert json.loads(written.stdout) == {"id": "a", "key": "x"}


@pytest.mark.slow
def test_values_of_another_format_are_told(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("kv", "put", "a", "no object", "-u", url)
    for value_format in ("json", "msgpack", "arrow-row"):
        refused = shale("kv", "export", "-", "--value-format", value_format, "-u", url)
        assert refused.returncode == 2
        assert f"the value of key a is not {value_format}: ".encode() in refused.stderr
    golden.run("kv", "put", "a", '{"x": 1}', "-u", url)
    lines = [json.dumps({"key": f"b{number:04}", "value": '{"x": 1}'}) for number in range(1000)]
    (tmp_path / "rows.ndjson").write_text("\n".join(lines))
    golden.run("kv", "import", str(tmp_path / "rows.ndjson"), "-u", url)
    golden.run("kv", "put", "c", '{"x": 1, "y": 2}', "-u", url)
    for suffix in ("csv", "parquet"):
        refused = shale("kv", "export", str(tmp_path / f"x.{suffix}"), "--value-format", "json", "-u", url)
        assert b"a row has the column 'y'" in refused.stderr
    assert shale("kv", "export", "-", "--value-format", "json", "-u", url).returncode == 0


def test_a_table_without_rows(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("kv", "put", "a", "1", "-u", url)
    golden.run("kv", "delete", "a", "-u", url)
    for suffix in ("csv", "parquet", "arrow"):
        golden.run("kv", "export", str(tmp_path / f"x.{suffix}"), "--value-format", "json", "-u", url)
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 0
    assert io.StringIO((tmp_path / "x.csv").read_text()).read() == ""
