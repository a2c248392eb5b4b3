"""Avro schemas that let a short value take any time, memory or stack: they bound what a reader may be given."""

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shale.errors import InvalidRequestError

Reader = Callable[[io.BytesIO, Any], Any]


def require_items_with_bytes(schema: Mapping[str, Any]) -> None:
    """Require that each item of an array takes a byte at least; a value could claim 2^62 of the others.

    Args:
        schema: as ``fastavro.parse_schema`` returns it.

    Raises:
        InvalidRequestError: names the items.
    """
    named = schema.get("__named_schemas", {})
    for each in _within(schema):
        if isinstance(each, Mapping) and each.get("type") == "array" and _is_empty(each["items"], named, frozenset()):
            raise InvalidRequestError(f"avro_schema: items of type {each['items']!r:.60} take no bytes")


def reader_of(schema: Mapping[str, Any]) -> Reader:
    """Return the function that reads a datum.

    Records within themselves are read in Python: fastavro's compiled reader ends the process with its stack if a value
    nests them deeply, and Python raises ``RecursionError``.
    """
    import fastavro

    if _is_recursive(schema.get("__named_schemas", {})):
        from fastavro._read_py import schemaless_reader

        return lambda file, written: schemaless_reader(file, written, None)
    return lambda file, written: fastavro.schemaless_reader(file, written, None)


def _within(schema: Any) -> Iterator[Any]:
    """Yield a schema and those written within it."""
    yield schema
    for each in _parts_of(schema):
        yield from _within(each)


def _is_recursive(named: Mapping[str, Any]) -> bool:
    """Return whether a named schema is within itself."""
    inner = {
        name: {_name_of(each) for part in _parts_of(schema) for each in _within(part)} & named.keys()
        for name, schema in named.items()
    }
    while inner:
        ends = {name for name, names in inner.items() if not names & inner.keys()}
        if not ends:
            return True
        inner = {name: names for name, names in inner.items() if name not in ends}
    return False


def _is_empty(schema: Any, named: Mapping[str, Any], inside: frozenset[str]) -> bool:
    """Return whether values of a schema take no bytes."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, str):
        return schema == "null"
    if isinstance(schema, list) or _name_of(schema) in inside:
        return False
    match schema.get("type"):
        case "fixed":
            return bool(schema["size"] == 0)
        case "record" | "error":
            within = inside | ({_name_of(schema)} - {""})
            return all(_is_empty(each, named, within) for each in _parts_of(schema))
        case "array" | "map" | "enum":
            return False
        case type_:
            return _is_empty(type_, named, inside)


def _name_of(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", "")) if isinstance(schema, Mapping) else ""


def _parts_of(schema: Any) -> list[Any]:
    """Return the schemas directly within one."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, Mapping):
        return []
    if "fields" in schema:
        return [field["type"] for field in schema["fields"]]
    inner = [schema[name] for name in ("items", "values") if name in schema]
    return [*inner, schema["type"]] if isinstance(schema.get("type"), Mapping | list) else inner
