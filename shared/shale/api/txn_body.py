"""The body of ``POST /v1/txn``: comparisons, and the writes to apply if all of them hold (docs/reference/http.md 4).

``["absent", key]``, ``["present", key]``, ``["value", key, value]``, ``["seq", key, seq]``; or objects, as
``{"check": "value", "key", "value"}``.
"""

from collections.abc import Mapping

from shale.api.fields import binary, reject_unknown_fields, whole_number
from shale.api.ops_body import batch_from_ops, items
from shale.core.lazy_dataclass import dataclass
from shale.engine.write.batch import WriteBatch
from shale.service.http.documents import Fields
from shale.service.http.problems import Problem, bad_request
from shale.types import Row

_FIELDS = frozenset({"compare", "ops"})
_CHECK_FIELDS = {"absent": (), "present": (), "value": ("value",), "seq": ("seq",)}
_SEQ_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class CompareClause:
    """A condition on one key: absent, present, has this value, or was last written by this commit."""

    key: bytes
    is_present: bool
    value: bytes | None = None
    seq: int | None = None

    def holds(self, row: Row | None) -> bool:
        """Return whether the condition holds for the row of the key."""
        if row is None or not self.is_present:
            return (row is not None) is self.is_present
        return (self.value is None or row.value == self.value) and (self.seq is None or row.seq == self.seq)


@dataclass(frozen=True, slots=True)
class TxnRequest:
    """``writes`` are applied if all of ``compare`` hold at the commit; there may be no writes."""

    compare: tuple[CompareClause, ...]
    writes: WriteBatch
    """Built once, for all attempts to commit."""


def txn_from_body(body: Fields, *, packed: bool, max_key_bytes: int, max_rows: int) -> TxnRequest:
    """Return the transaction of a body.

    Raises:
        Problem: the body is malformed (400) or too long (413); the message names the item.
        InvalidRequestError: a key, value or lifetime is impossible.
    """
    reject_unknown_fields(body, _FIELDS)
    wanted = items(body.get("compare", ()), "compare", max_rows=max_rows)
    ops = items(body.get("ops", ()), "ops", max_rows=max_rows)
    if not wanted and not ops:
        raise bad_request("the transaction is empty: neither compare nor ops")
    compare = tuple(_compare(each, f"compare[{place}]", packed=packed) for place, each in enumerate(wanted))
    return TxnRequest(compare, batch_from_ops(ops, packed=packed, max_key_bytes=max_key_bytes))


def _compare(item: object, name: str, *, packed: bool) -> CompareClause:
    if isinstance(item, dict):
        item = _as_array(item, name)
    match item:
        case ["absent" | "present" as kind, key]:
            return CompareClause(_key(key, name, packed=packed), kind == "present")
        case ["value", key, value]:
            return CompareClause(
                _key(key, name, packed=packed), True, value=binary(value, f"{name} value", packed=packed)
            )
        case ["seq", key, seq]:
            number = whole_number(seq, f"{name} seq", most=_SEQ_MAX, what="a sequence number")
            return CompareClause(_key(key, name, packed=packed), True, seq=number)
    raise _not_a_comparison(name)


def _as_array(item: Mapping[str, object], name: str) -> list[object]:
    """Return the array form of a comparison that is an object."""
    check = item.get("check")
    more = _CHECK_FIELDS.get(check) if isinstance(check, str) else None
    if more is None:
        raise _not_a_comparison(name)
    reject_unknown_fields(item, frozenset({"check", "key", *more}), name)
    return [check, item.get("key"), *(item.get(field) for field in more)]


def _not_a_comparison(name: str) -> Problem:
    return bad_request(
        f'{name}: must be one of ["absent", key], ["present", key], ["value", key, value], ["seq", key, seq], '
        "or an object with check, key, and value or seq"
    )


def _key(key: object, name: str, *, packed: bool) -> bytes:
    data = binary(key, f"{name} key", packed=packed)
    if not data:
        raise bad_request(f"{name} key: the key is empty")
    return data
