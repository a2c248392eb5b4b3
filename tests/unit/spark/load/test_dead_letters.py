"""Rows that ``df.write`` cannot store: tasks store them with the reason; those of successful attempts are kept."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shale.engine.location import resolve
from shale.errors import InvalidRequestError
from shale_spark.codecs import value_codec
from shale_spark.load import dead_letters
from shale_spark.load.batches import select_stored_columns
from shale_spark.load.dead_letters import DeadLetterCollector, DeadLetterFolder
from shale_spark.load.request import LoadColumns
from shale_spark.load.rules import KEY_BYTES_MAX
from shale_spark.load.write_options import dead_letters_folder

KEYS = [b"a", None, b"", b"x" * (KEY_BYTES_MAX + 1), b"b", b"c"]
WHY = ["the key is null", "the key is empty", f"the key is longer than {KEY_BYTES_MAX} bytes", "the value is null"]


def plain() -> pa.RecordBatch:
    values = [b"1", b"2", b"3", b"4", None, b"6"]
    return pa.RecordBatch.from_pydict({"key": pa.array(KEYS, pa.binary()), "value": pa.array(values, pa.binary())})


def letters(folder: Path) -> DeadLetterFolder:
    return DeadLetterFolder(folder=resolve(f"file://{folder}/rejected"), write_id="1")


def pick(batch: pa.RecordBatch) -> pa.RecordBatch:
    return select_stored_columns(batch, LoadColumns(), has_codec=False)


def test_rows_that_cannot_be_stored_are_put_aside_with_the_reason(tmp_path: Path) -> None:
    aside = DeadLetterCollector(letters(tmp_path), None, pick)
    good = pa.Table.from_batches(list(aside.storable([plain(), plain()])))
    assert good["key"].to_pylist() == [b"a", b"c"] * 2
    (name,) = aside.names
    bad = pq.read_table(tmp_path / name)
    assert bad["shale_reason"].to_pylist() == WHY * 2
    assert bad["shale_key"].to_pylist() == KEYS[1:5] * 2


class Picky:
    """A codec that rejects odd numbers with a reason."""

    def encode(self, row: Mapping[str, Any]) -> bytes:
        if row["n"] % 2:
            raise ValueError(f"{row['n']} is odd")
        return b"%d" % row["n"]

    def decode(self, value: bytes) -> Mapping[str, Any]:
        return {"n": int(value)}


def test_rows_that_a_codec_refuses_are_put_aside_too(tmp_path: Path) -> None:
    columns = LoadColumns(values=("n",))
    aside = DeadLetterCollector(
        letters(tmp_path),
        value_codec(f"{__name__}:Picky"),
        partial(select_stored_columns, columns=columns, has_codec=True),
    )
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b", None], "n": [2, 3, 4]})
    assert [row["key"] for good in aside.storable([batch]) for row in good.to_pylist()] == ["a"]
    bad = pq.read_table(tmp_path / aside.names[0])
    assert bad["n"].to_pylist() == [3, 4]
    refused, null = bad["shale_reason"].to_pylist()
    assert refused.startswith("cannot be written as a value: ValueError")
    assert null == "the key is null"


def test_memory_is_bounded_by_writing_file_after_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "FILE_BYTES", 1)
    aside = DeadLetterCollector(letters(tmp_path), None, pick)
    assert len(list(aside.storable([plain()] * 3))) == 3
    assert len(aside.names) == 3


def test_only_the_attempts_that_count_are_kept(tmp_path: Path) -> None:
    here = letters(tmp_path)
    names = [here.write([plain()]) for _ in range(3)]
    other = DeadLetterFolder(folder=here.folder, write_id="2").write([plain()])
    here.keep(names[1:2])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert left == {names[1], other}


def test_without_a_folder_every_row_goes_on(tmp_path: Path) -> None:
    aside = DeadLetterCollector(None, None, pick)
    assert [batch.num_rows for batch in aside.storable([plain()])] == [6]
    assert not aside.names


@pytest.mark.parametrize("folder", ["rejected", "memory:///x", "ftp://host/x"])
def test_a_folder_that_tasks_cannot_reach_is_refused(folder: str) -> None:
    with pytest.raises(InvalidRequestError, match="dead_letters"):
        dead_letters_folder({"dead_letters": folder})
