"""The keywords of ``open``: the same names as the options, and errors that suggest the intended name."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Unpack, get_type_hints

import anyio
import pytest

import shale
from shale import sync
from shale.engine.open_context import OpenContext
from shale.errors import InvalidRequestError, UnknownOption
from shale.store.memory import MemoryStore

OPENS = {
    "Db": shale.Db.open,
    "DbReader": shale.DbReader.open,
    "Admin": shale.Admin,
    "sync.Db": sync.Db.open,
    "sync.DbReader": sync.DbReader.open,
    "sync.Admin": sync.Admin,
}


@pytest.mark.parametrize(
    ("typed", "options"), [(shale.DbOpenOptions, shale.DbOptions), (shale.ReaderOpenOptions, shale.ReaderOptions)]
)
def test_every_option_is_a_typed_keyword_without_its_unit(typed: Any, options: Any) -> None:
    names = {each.name.removesuffix("_s").removesuffix("_ms") for each in fields(options)}
    assert set(get_type_hints(typed)) == names | set(get_type_hints(shale.ConnectOptions))
    assert not typed.__required_keys__


@pytest.mark.parametrize("opening", OPENS.values(), ids=OPENS)
def test_the_keywords_of_open_are_typed(opening: Callable[..., Any]) -> None:
    *named, keywords = inspect.signature(opening).parameters.values()
    assert [each.name for each in named][:3] == ["where", "store", "path"]
    assert keywords.kind is inspect.Parameter.VAR_KEYWORD
    typed = {Unpack[shale.ConnectOptions], Unpack[shale.DbOpenOptions], Unpack[shale.ReaderOpenOptions]}
    assert keywords.annotation in typed


@pytest.mark.parametrize("opening", OPENS.values(), ids=OPENS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wal_stor", "wal_stor: no such option; did you mean wal_store?"),
        ("stores", "stores: no such option; did you mean store?"),
        ("colour", "colour: no such option"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_that_names_the_closest_one(
    opening: Callable[..., Any], name: str, message: str
) -> None:
    with pytest.raises(TypeError) as raised:
        opening("memory:///db", **{name: None})
    assert isinstance(raised.value, UnknownOption)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("opening", "name", "meant"),
    [
        (shale.Db.open, "flush_intervall", "flush_interval"),
        (shale.Db.open, "l0_sst_size", "l0_sst_size_bytes"),
        (shale.DbReader.open, "checkpoint_lifetim", "checkpoint_lifetime"),
    ],
)
def test_a_misspelled_option_is_found(opening: Callable[..., Any], name: str, meant: str) -> None:
    with pytest.raises(UnknownOption, match=f"^{name}: no such option; did you mean {meant}\\?$"):
        opening("memory:///db", **{name: 1})


def test_an_unknown_keyword_is_named_even_beside_options() -> None:
    with pytest.raises(UnknownOption, match=r"^flush_intervall: "):
        shale.Db.open("memory:///db", options=shale.DbOptions(), flush_intervall=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["manifest_poll_interval", "max_unflushed_bytes"])
def test_an_option_without_a_none_refuses_it(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        shale.DbOptions.from_keywords({name: None})


async def close_at_once(opened: OpenContext[shale.Db]) -> None:
    await (await opened).close()


def test_keywords_of_the_connection_go_with_options() -> None:
    opened = shale.Db.open("db", store=MemoryStore(), wal_store=MemoryStore(), options=shale.DbOptions())
    assert opened is not None
    anyio.run(close_at_once, opened)


def test_an_unknown_option_of_a_scan_is_not_ignored() -> None:
    with sync.Db.open("db", store=MemoryStore()) as db, db.transaction() as tx:
        for scan in (db.scan, tx.scan):
            with pytest.raises(UnknownOption, match=r"^hide_expire: no such option; did you mean hide_expired\?$"):
                scan(hide_expire=True)  # type: ignore[call-arg]
