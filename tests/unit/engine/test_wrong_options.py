"""Options that cannot work are refused before anything is written: a typo must not fence the writer that runs."""

from pathlib import Path
from typing import Any

import pytest

import shale
from shale.errors import InvalidRequestError, LatestRecordMissing
from shale.store.memory import MemoryStore
from shale.types import KeyRange

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "options",
    [
        {"merge_operator": "sum"},
        {"merge_operator": 5},
        {"options": 5},
        {"cache": "64MiB"},
        {"filter_policies": [5]},
        {"filter_policies": 5},
        {"segment_extractor": b"/"},
        {"block_transformer": b"key"},
        {"env": "test"},
        {"metrics": 5},
    ],
    ids=str,
)
async def test_a_wrong_option_does_not_fence_the_writer(options: dict[str, Any]) -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store) as db:
        with pytest.raises(InvalidRequestError):
            await shale.Db.open("db", store=store, **options)
        with pytest.raises(InvalidRequestError):
            await shale.DbReader.open("db", store=store, **options)
        await (await db.put(b"k", b"v")).durable()


async def test_wrong_parts_in_one_value_of_options_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no merge operator is called 'sum'"):
        shale.DbOptions(merge_operator="sum")
    with pytest.raises(InvalidRequestError, match="no merge operator is called 'sum'"):
        shale.ReaderOptions(merge_operator="sum")


async def test_lost_manifests_are_no_missing_database(tmp_path: Path) -> None:
    """Neither the database itself is suggested, nor to create an empty one over its files."""
    async with shale.Db.open(tmp_path / "orders") as db:
        await (await db.put(b"k", b"v")).durable()
    for file in (tmp_path / "orders/manifest").iterdir():
        file.unlink()
    with pytest.raises(LatestRecordMissing) as raised:
        await shale.DbReader.open(tmp_path / "orders")
    assert "although compacted and wal have files of a database: restore the manifests" in str(raised.value)
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize(
    ("range_", "text"),
    [
        (KeyRange(), "(…, …)"),
        (KeyRange.half_open(b"a", b"b"), "[b'a', b'b')"),
        (KeyRange.half_open(None, b"b"), "(…, b'b')"),
    ],
)
async def test_a_range_is_shown_as_an_interval(range_: KeyRange, text: str) -> None:
    assert str(range_) == text


async def test_more_handles_show_their_state() -> None:
    async with shale.Db.open("db", store=MemoryStore(), compactor=False, gc=False) as db:
        batch = db.new_batch()
        batch.put(b"<k>", b"v" * 2000)
        assert repr(batch) == "<shale.WriteBatch keys=1 size=2.0 KiB>"
        assert repr(db.scan(prefix=b"a")) == "<shale.Scan range=[b'a', b'b') reverse=False last_key=None>"
        assert repr(db.status).startswith("<shale.DbStatus database=")
        assert repr(db.mapping(codec=shale.codecs.JSON, prefix=b"p/")).startswith(
            "<shale.WriteMapping prefix=b'p/' of=<"
        )
        assert "&lt;shale.Db" in db.mapping(codec=shale.codecs.JSON)._repr_html_()
