"""Typed views: asynchronous ones, and blocking ones as a mutable mapping beside a dict."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shale
from shale import codecs, sync
from shale.errors import InvalidRequestError
from shale.store.memory import MemoryStore
from tests.examples import examples


@pytest.fixture(scope="module")
def db() -> Iterator[sync.Db]:
    with sync.Db.open("db", store=MemoryStore()) as opened:
        opened.put(b"other", b"not of any view")
        yield opened


def test_an_asynchronous_view_writes_and_reads_objects() -> None:
    async def run() -> None:
        async with shale.Db.open("db", store=MemoryStore()) as db:
            ages = db.mapping(codec=codecs.JSON, key_codec=codecs.INT, prefix=b"age/")
            await ages.put(-5, {"years": 3}, ttl="1h")
            handle = await ages.update({7: {"years": 70}, 300: {"years": 0}})
            assert handle is not None
            assert await ages.update({}) is None
            await db.put(b"ageless", b"not JSON")
            assert await ages.get(-5) == {"years": 3}
            assert await ages.get(1, {"years": -1}) == {"years": -1}
            assert await ages.get_many([300, 1, 7]) == [{"years": 0}, None, {"years": 70}]
            assert await ages.contains(7)
            assert await ages.count() == 3
            assert [key async for key in ages.keys(reverse=True)] == [300, 7, -5]
            assert [value["years"] async for value in ages.values(0)] == [70, 0]
            async with db.snapshot() as snapshot:
                await ages.delete(7)
                old = snapshot.mapping(codec=codecs.JSON, key_codec=codecs.INT, prefix=b"age/")
                assert [key async for key, _ in old.items(stop=300)] == [-5, 7]
            assert not await ages.contains(7)
            assert await db.get(b"age/" + (2**63 - 5).to_bytes(8, "big")) == b'{"years":3}'

    asyncio.run(run())


def test_ranges_need_keys_in_order(db: sync.Db) -> None:
    view = db.mapping(codec=codecs.BYTES, key_codec=codecs.JSON, prefix=b"documents/")
    view["b"] = b"1"
    assert list(view) == ["b"]
    with pytest.raises(InvalidRequestError, match="keeps the order"):
        view.range("a")


def test_rows_of_others_are_named(db: sync.Db) -> None:
    db.put(b"mixed/\xff", b"{}")
    view = db.mapping(codec=codecs.JSON, key_codec=codecs.TEXT, prefix=b"mixed/")
    with pytest.raises(InvalidRequestError, match=r"key 7:.*not UTF-8"):
        list(view)
    db.put(b"mixed/a", b"{")
    with pytest.raises(InvalidRequestError, match=r"value of 7:.*not JSON"):
        view["a"]


def test_what_cannot_be_stored_is_named(db: sync.Db) -> None:
    view = db.mapping(codec=codecs.INT, key_codec=codecs.TEXT, prefix=b"named/")
    for write in (lambda: view.__setitem__("seven", 7.0), lambda: view.update(seven=7.0)):
        with pytest.raises(InvalidRequestError, match="value for 'seven': an integer is wanted, not float"):
            write()
    with pytest.raises(InvalidRequestError, match="key 7: text is wanted, not int"):
        view[7] = 7  # type: ignore[index]
    assert not view
    view["one"] = 1
    assert view


def test_views_take_the_keys_that_the_database_takes() -> None:
    with sync.Db.open("db", store=MemoryStore(), max_key_bytes=100_000) as db:
        view = db.mapping(codec=codecs.INT)
        view.update({b"k" * 70_000: 1})
        assert view[b"k" * 70_000] == 1
        view.clear()
        assert not view


def test_a_reader_s_view_cannot_be_written() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store) as db:
        db.put(b"k", b"v")
    with sync.DbReader.open("db", store=store) as reader:
        view: Any = reader.mapping(codec=codecs.TEXT)
        assert dict(view) == {b"k": "v"}
        with pytest.raises(TypeError):
            view[b"k"] = "w"


STEP = st.tuples(
    st.sampled_from(["set", "del", "pop", "setdefault", "update", "popitem", "get"]),
    st.integers(-2, 2),
    st.text("ab", max_size=2),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=8))
def test_it_is_a_mutable_mapping(db: sync.Db, steps: list[tuple[str, int, str]]) -> None:
    view = db.mapping(codec=codecs.TEXT, key_codec=codecs.INT, prefix=b"view/")
    view.clear()
    model: dict[int, str] = {}
    before: dict[int, str] = {}
    for what, key, value in steps:
        shown, wanted = (outcome(mapping, what, key, value) for mapping in (view, model))
        if what != "popitem":
            assert shown == wanted
        elif wanted is not KeyError:
            assert shown == min(before.items())
            model.pop(shown[0])
        before = dict(model)
        assert view == model
        assert list(view.items()) == sorted(model.items())
        assert list(reversed(view)) == sorted(model, reverse=True)
        assert list(view.values()) == [model[each] for each in sorted(model)]
        assert len(view) == len(model)
        assert list(view.range(0, 2)) == sorted(item for item in model.items() if 0 <= item[0] < 2)
    assert db.get(b"other") == b"not of any view"


def outcome(mapping: MutableMapping[int, str], what: str, key: int, value: str) -> Any:
    try:
        match what:
            case "set":
                mapping[key] = value
            case "del":
                del mapping[key]
            case "pop":
                return mapping.pop(key)
            case "setdefault":
                return mapping.setdefault(key, value)
            case "update":
                mapping.update({key: value, key + 1: value})
            case "get":
                return (mapping.get(key), key in mapping)
            case "popitem" if isinstance(mapping, dict):
                return None if mapping else KeyError
            case "popitem":
                return mapping.popitem()
    except KeyError:
        return KeyError
    return None
