"""Requests of a load: validated with clear errors before anything is written."""

from typing import Any

import pytest

from shale.errors import InvalidRequestError
from shale.store.memory import MemoryStore
from shale.types import Compression
from shale_spark.load.request import LoadColumns, LoadMode, load_request
from shale_spark.load.rules import DuplicateKeys

URL = "file:///data/orders"


def test_the_defaults() -> None:
    request = load_request(URL)
    assert (request.where.store, request.where.root) == ("file:///data", "orders")
    assert request.mode is LoadMode.CREATE
    assert request.duplicates is DuplicateKeys.ERROR
    assert request.columns == LoadColumns()
    assert request.sst_bytes == 256 << 20
    assert request.codec is None


def test_values_are_one_column_or_what_a_codec_takes() -> None:
    assert load_request(URL, value="payload").columns.values == ("payload",)
    assert load_request(URL, value_format="json").columns.values == ()
    assert load_request(URL, value=["a", "b"], value_format="json").columns.values == ("a", "b")


def test_sizes_durations_and_names_are_read() -> None:
    request = load_request(URL, ttl="2h", sst_bytes="1MiB", block_size=8192, compression="zstd", duplicates="error")
    assert request.ttl_ms == 7_200_000
    assert request.sst_bytes == 1 << 20
    assert (request.sst.block_size_bytes, request.sst.compression) == (8192, Compression.ZSTD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "replace"}, "mode: 'replace' is none of create, append"),
        ({"duplicates": "first"}, "duplicates: 'first' is none of error, last"),
        ({"duplicates": "last"}, "needs order_by"),
        ({"order_by": "at"}, "order_by chooses"),
        ({"fence": True}, "a new database has no writer"),
        ({"value": ["a", "b"]}, "2 columns make no value without a value_format"),
        ({"value_format": "xml"}, "no value format is called 'xml'"),
        ({"compression": "brotli"}, "compression: 'brotli' is none of none, snappy, zlib, lz4, zstd"),
        ({"sst_bytes": 0}, "sst_bytes"),
        ({"block_size": "1MiB"}, "block_size_bytes must be"),
        ({"partitions": 0}, "partitions: 0"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": "99999999999d"}, "ttl: '99999999999d' is longer than"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        load_request(URL, **arguments)


def test_a_store_that_executors_cannot_reach_is_refused() -> None:
    from shale.engine.location import DatabaseLocation

    for where in ("memory:///db", DatabaseLocation(MemoryStore(), "db")):
        with pytest.raises(InvalidRequestError, match="executors cannot reach"):
            load_request(where)
