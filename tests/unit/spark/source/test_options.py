"""Options of the data source: parsed, or refused by name."""

import re
from uuid import UUID

import pytest

from shale.errors import InvalidRequestError
from shale.types import KeyRange
from shale_spark.codecs import OnDecodeError
from shale_spark.source.options import KNOWN, SparkReadOptions, parse_where, where_options
from tests.paths import REPOSITORY

URL = "file:///data/orders"


def test_everything_has_a_default_but_the_place() -> None:
    """One URL is enough."""
    options = SparkReadOptions.parse({"url": URL})
    assert (options.where.store, options.where.root) == ("file:///data", "orders")
    assert options.partition_bytes == 128 * 1024**2
    assert options.on_decode_error is OnDecodeError.FAILFAST
    assert not options.pushdown


@pytest.mark.parametrize(
    "options",
    [
        {"path": URL},
        {"URL": URL},
        {"url": URL, "path": URL},
        {"store": "file:///data", "path": "orders"},
    ],
)
def test_a_place_can_be_named_in_several_ways(options: dict[str, str]) -> None:
    """``.load(url)`` is the option ``path``."""
    where = parse_where(options)
    assert (where.store, where.root) == ("file:///data", "orders")


def test_a_place_survives_the_way_through_options() -> None:
    """The store options are part of it."""
    where = parse_where({"store": "s3://b", "path": "a/c", "store.endpoint": "http://h:1", "wal_store": "s3://w"})
    assert parse_where(where_options(where)) == where
    assert where.store_options.config == {"endpoint": "http://h:1"}


def test_the_version_of_manifests_survives_the_way_through_options() -> None:
    where = parse_where({"url": URL, "manifest_write_version": "1"})
    assert where.manifest_write_version == 1
    assert parse_where(where_options(where)) == where
    with pytest.raises(InvalidRequestError, match="manifest_write_version: '3' is unknown"):
        parse_where({"url": URL, "manifest_write_version": "3"})


def test_secrets_are_in_no_message() -> None:
    """No message that names a database contains secrets."""
    options = SparkReadOptions.parse({"url": "s3://b/db", "store.secret_access_key": "hidden"})
    assert options.where.store_options.config == {"secret_access_key": "hidden"}
    assert "hidden" not in repr(options)


def test_ranges_of_keys() -> None:
    """In the formats of the command line; a prefix narrows a range."""
    options = SparkReadOptions.parse({"url": URL, "start": "6b31", "stop": "6b35", "key_format": "hex"})
    assert options.key_range == KeyRange.half_open(b"k1", b"k5")
    options = SparkReadOptions.parse({"url": URL, "prefix": "user:", "start": "user:b"})
    assert options.key_range == KeyRange.half_open(b"user:b", b"user;")
    assert SparkReadOptions.parse({"url": URL, "keys": "b,a,b"}).keys == (b"a", b"b")
    for text in (str(UUID(int=7)), "nightly"):
        assert SparkReadOptions.parse({"url": URL, "checkpoint": text}).checkpoint == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give the option url"),
        ({"url": URL, "path": "file:///other/db"}, "two databases"),
        ({"url": URL, "colour": "red"}, "colour: no such option"),
        ({"url": URL, "checkpoint": " "}, "checkpoint: ' ' is neither the id"),
        ({"url": URL, "start": "zz", "key_format": "hex"}, "start: 'zz' is not hex"),
        ({"url": URL, "start": "zz", "key_format": "octal"}, "key_format: 'octal'"),
        ({"url": URL, "key_format": "hexx"}, "key_format: 'hexx' is none of utf8, hex, base64, repr"),
        ({"url": URL, "prefix": "1", "key_format": "repr"}, "prefix: '1' is not a bytes literal"),
        ({"url": URL, "partition_bytes": "much"}, "partition_bytes: 'much' is not a size"),
        ({"url": URL, "partition_bytes": "0"}, "partition_bytes must be greater than 0"),
        ({"url": URL, "checkpoint_lifetime": "1s"}, "checkpoint_lifetime must be at least 30s"),
        ({"url": URL, "mode": "dropmalformed"}, "mode: 'dropmalformed'"),
        ({"url": URL, "pushdown": "perhaps"}, "pushdown: 'perhaps'"),
        ({"url": URL, "store.max_retries": "9" * 5000}, r"store.max_retries: '9+… \(5002 characters\) is too large"),
        ({"url": URL, "partition_bytes": "9" * 5000}, "partition_bytes: '9+… .* is too large"),
        ({"url": URL, "store.max_retries": "many"}, "store.max_retries: 'many'"),
        ({"url": URL, "store.max_retries": "\u00b2"}, "store.max_retries: '\u00b2' is not a number"),
        ({"url": URL, "tail_bytes": "\u00b2"}, "tail_bytes: '\u00b2' is not a size"),
    ],
)
def test_what_is_not_understood_is_refused(options: dict[str, str], message: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidRequestError, match=message):
        SparkReadOptions.parse(options)


def test_a_store_object_cannot_travel() -> None:
    """Executors are other processes."""
    from shale.engine.location import resolve
    from shale.store.memory import MemoryStore

    with pytest.raises(InvalidRequestError, match="by URL"):
        where_options(resolve("db", store=MemoryStore()))


def test_the_page_tells_every_option() -> None:
    """And no option that does not exist."""
    page = (REPOSITORY / "docs" / "how-to" / "spark-read.md").read_text()
    table = page.partition("## Options")[2].partition("## ")[0]
    first_cells = [
        line.partition(" (default")[0].partition(":")[0] for line in table.splitlines() if line.startswith("- `")
    ]
    told = {name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell)}
    assert told == KNOWN
