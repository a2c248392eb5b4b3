"""The location of a database, in every notation."""

from pathlib import Path, PurePosixPath

import pytest

from shale.errors import InvalidRequestError
from shale.store.location import Location, normalize_path, parse_location


@pytest.mark.parametrize(
    ("url", "store_url", "path"),
    [
        ("s3://bucket/a/b", "s3://bucket", "a/b"),
        ("s3a://bucket//a///b/", "s3://bucket", "a/b"),
        ("gs://bucket/db", "gs://bucket", "db"),
        ("az://container/x/y", "az://container", "x/y"),
        ("file:///data/orders", "file:///data", "orders"),
        ("file:///orders/", "file:///", "orders"),
        ("file://localhost/data/my%20shop/orders", "file:///data/my%20shop", "orders"),
        ("memory:///db", "memory:///", "db"),
        ("memory:///a/b", "memory:///", "a/b"),
    ],
)
def test_a_url_splits_into_store_and_path(url: str, store_url: str, path: str) -> None:
    location = parse_location(url)
    assert location == Location(store_url, path)
    assert parse_location(location.url) == location
    assert parse_location(store=location.store_url, path="/" + path) == location


def test_a_path_is_the_url_of_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "my shop" / "orders"
    assert parse_location(inner) == parse_location(f"file://{tmp_path}/my%20shop/orders")
    assert parse_location(Path("my shop/../orders")) == parse_location(f"file://{tmp_path}/orders")
    assert parse_location(store=tmp_path, path=PurePosixPath("a/b")) == Location(f"file://{tmp_path}", "a/b")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/data/orders",
        "data/orders",
        "http://bucket/db",
        "s3://bucket",
        "s3:///db",
        "s3://key:secret@bucket/db",
        "s3://bucket/db?region=x",
        "s3://bucket/a/../b",
        "s3://bucket/a%0Ab",
        "file://host/data/db",
        "file:///data/../db",
        "file:///",
        "memory:///",
    ],
)
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_location(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["a*b", "a#1", "a?b", "a|b", 'a"b', "a\x00", "a\\b", "./a", "a/.."])
def test_a_path_that_stores_would_escape_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError):
        normalize_path(path)


def test_one_way_of_naming_is_enough() -> None:
    with pytest.raises(InvalidRequestError, match="not both"):
        parse_location("s3://b/p", store="s3://b")
    with pytest.raises(InvalidRequestError, match="no database"):
        parse_location()
    with pytest.raises(InvalidRequestError, match="only a bucket"):
        parse_location(store="s3://b/prefix", path="x")
    assert parse_location(store="file:///data") == Location("file:///data", "")
