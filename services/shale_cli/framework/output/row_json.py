"""Converts rows to JSON, with keys and values in base64, and in tables also in the key format."""

from typing import TYPE_CHECKING, Any

from shale.admin.json_values import b64, rfc3339
from shale_cli.framework.output.writer import Output

if TYPE_CHECKING:
    from shale.types import Entry, Row


def row_json(row: "Row") -> dict[str, Any]:
    """Return a visible row as JSON."""
    data: dict[str, Any] = {"key_b64": b64(row.key), "value_b64": b64(row.value), "seq": row.seq}
    return {**data, **_times(row.create_ts, row.expire_ts)}


def row_item(row: "Row", output: Output) -> dict[str, Any]:
    """Return a row for ``Stream``; for tables and CSV also with ``key`` and ``value`` in the key format."""
    data = row_json(row)
    if not output.is_human_readable:
        return data
    return {"key": output.show(row.key), "value": output.show(row.value), **data}


def entry_item(entry: "Entry", output: Output, **place: object) -> dict[str, Any]:
    """Return a stored entry, also a tombstone or an operand, after the fields of its storage ``place``."""
    from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS

    kind = "delete" if entry.is_tombstone else "merge" if entry.is_merge else "put"
    data: dict[str, Any] = {
        **place,
        "seq": entry.seq,
        "kind": kind,
        "key_b64": b64(entry.key),
        "value_b64": None if entry.is_tombstone else b64(entry.value),
        **_times(
            entry.create_ts if entry.flags & FLAG_CREATE_TS else None,
            entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None,
        ),
    }
    if output.is_human_readable:
        value = None if entry.is_tombstone else output.show(entry.value)
        data |= {"key": output.show(entry.key), "value": value}
    return data


def _times(create_ms: int | None, expire_ms: int | None) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, ms in (("create", create_ms), ("expire", expire_ms)):
        data[f"{name}_time"] = None if ms is None else rfc3339(ms)
        data[f"{name}_ms"] = ms
    return data
