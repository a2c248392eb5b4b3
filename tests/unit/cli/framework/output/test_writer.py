"""Every output format has the same content, and no value is truncated."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
import yaml

from shale.errors import InvalidRequestError
from shale_cli.framework.output.stream import Stream
from shale_cli.framework.output.writer import Color, Format, KeyEncoding, Output
from tests.paths import REPOSITORY

ITEMS: list[dict[str, Any]] = [
    {"id": "01JD4ZC8M7S5X4T2Q3W1E0R9YB", "progress": {"bytes": 5, "done": True}, "sources": [1, 2], "error": None},
    {"id": "01JD4ZC8M7S5X4T2Q3W1E0R9YC", "progress": {"bytes": 6, "done": False}, "sources": [], "error": 'a,\n"b"'},
]
COLUMNS = ("id", "progress.bytes", "error")


def make(format_: Format, *columns: str, headers: bool = True) -> Output:
    return Output(format_, KeyEncoding.UTF8, columns=columns, headers=headers)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_json_and_yaml_have_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    make(Format.JSON).listing("things", ITEMS, COLUMNS)
    wanted = {"schema_version": 1, "things": ITEMS}
    assert json.loads(said(capsys)) == wanted
    make(Format.YAML).listing("things", ITEMS, COLUMNS)
    assert yaml.safe_load(said(capsys)) == wanted
    make(Format.JSONL).listing("things", ITEMS, COLUMNS)
    assert [json.loads(line) for line in said(capsys).splitlines()] == [{"schema_version": 1, **each} for each in ITEMS]


def test_csv_flattens_and_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    make(Format.CSV).listing("things", ITEMS, COLUMNS)
    rows = list(csv.DictReader(io.StringIO(said(capsys))))
    assert [row["progress.bytes"] for row in rows] == ["5", "6"]
    assert [row["progress.done"] for row in rows] == ["true", "false"]
    assert [row["error"] for row in rows] == ["", 'a,\n"b"']
    assert [row["sources"] for row in rows] == ["[1,2]", "[]"]
    make(Format.CSV).listing("things", [], COLUMNS)
    assert said(capsys) == "id,progress.bytes,error\n", "a listing of nothing still has its header"
    make(Format.CSV).record(ITEMS[0], [])
    assert said(capsys).splitlines()[0] == "id,progress.bytes,progress.done,sources,error"


@pytest.mark.parametrize("format_", list(Format))
def test_columns_choose_fields(format_: Format, capsys: pytest.CaptureFixture[str]) -> None:
    make(format_, "progress.bytes", "id", headers=False).listing("things", ITEMS[:1], COLUMNS)
    text = said(capsys)
    assert "5" in text
    assert "error" not in text
    assert "done" not in text
    for output in (make(format_, "nonsense"), make(format_, "progress.nonsense")):
        with pytest.raises(InvalidRequestError, match=r"unknown: .*nonsense; known: id, "):
            output.listing("things", ITEMS, COLUMNS)
        assert said(capsys) == "", "a refusal writes no half of an answer"


def test_headers_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for format_ in (Format.TABLE, Format.CSV):
        make(format_, "id").listing("things", ITEMS, COLUMNS)
        assert len(said(capsys).splitlines()) == 3
        make(format_, "id", headers=False).listing("things", ITEMS, COLUMNS)
        assert said(capsys).split() == [each["id"] for each in ITEMS]


def test_a_record_as_a_table_has_the_rows_that_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("l0", "a"), ("l0", "b"), ("run 3", "c")]
    make(Format.TABLE, "l0").record({}, rows)
    assert said(capsys) == "l0  a\nl0  b\n"
    with pytest.raises(InvalidRequestError, match="known: l0, run 3"):
        make(Format.TABLE, "l1").record({}, rows)


@pytest.mark.parametrize("format_", list(Format))
def test_what_streams_is_what_a_listing_has(format_: Format, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(make(format_), COLUMNS)
    for item in ITEMS:
        stream.write(item)
    stream.begin()
    text = said(capsys)
    match format_:
        case Format.TABLE:
            assert text.splitlines()[:2] == ["ID\tPROGRESS.BYTES\tERROR", f"{ITEMS[0]['id']}\t5\t-"]
        case Format.CSV:
            assert [row["progress.bytes"] for row in csv.DictReader(io.StringIO(text))] == ["5", "6"]
        case Format.YAML:
            assert yaml.safe_load(text) == ITEMS
        case _:
            assert [json.loads(line) for line in text.splitlines()] == [{"schema_version": 1, **each} for each in ITEMS]


def test_a_stream_of_nothing_has_headers(capsys: pytest.CaptureFixture[str]) -> None:
    Stream(make(Format.CSV), COLUMNS).begin()
    assert said(capsys) == "id,progress.bytes,error\n"
    Stream(make(Format.JSON), COLUMNS).begin()
    assert said(capsys) == ""


def test_color_is_asked_for_or_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.TABLE, KeyEncoding.UTF8, color=Color.ALWAYS).listing("things", ITEMS, ("id",))
    assert said(capsys).startswith("\x1b[1mID\x1b[0m\n")
    make(Format.TABLE).listing("things", ITEMS, ("id",))
    assert "\x1b" not in said(capsys)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_narrow_terminal_folds_and_loses_nothing(no_color: str) -> None:
    program = (
        "from tests.unit.cli.framework.output.test_writer import ITEMS, make; "
        "from shale_cli.framework.output.writer import Format; "
        "make(Format.TABLE).listing('things', ITEMS, ('id', 'error', 'id'))"
    )
    ours, theirs = pty.openpty()
    environment = {"PYTHONPATH": ":".join(sys.path), "COLUMNS": "30", "TERM": "xterm", "NO_COLOR": no_color}
    with subprocess.Popen([sys.executable, "-c", program], stdout=theirs, env=environment, cwd=REPOSITORY) as process:
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
    assert process.returncode == 0
    assert (b"\x1b[" in text) == (not no_color)
    plain = text.decode().replace("\x1b[1m", "").replace("\x1b[0m", "")
    lines = plain.splitlines()
    assert max(map(len, lines)) <= 30
    column = "".join(line[:10].split(" ")[0] for line in lines[1:])
    assert "01JD4ZC8M7" in column
    assert "R9YB" in column


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""
