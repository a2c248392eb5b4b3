"""The grammar of ``POST /v1/txn``, read plainly, item by item: what the parser of requests is compared with."""

import base64
import re
from typing import Any, NamedTuple

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_EXCESS = re.compile(r"(?:[A-Za-z0-9+/]{4})+=+")
TTL_MAX, _TIME_MAX, SEQ_MAX = 1 << 62, (1 << 63) - 1, (1 << 64) - 1


class Refused(Exception):
    """The grammar has no such body; ``place`` is the item, ``None`` if it is the body as a whole."""

    def __init__(self, place: str | None = None) -> None:
        super().__init__(place)
        self.place = place


class Unclear(Exception):
    """A text has padding after complete base64, which the strict mode of older releases of Python takes."""


class PlainWrite(NamedTuple):
    kind: str
    key: bytes
    value: bytes = b""
    ttl_ms: int | None = None
    expire_at: int | None = None


class PlainBody(NamedTuple):
    """A body, read plainly: comparisons as kind, key and what is wanted, and writes in their order."""

    compare: list[tuple[str, bytes, Any]]
    ops: list[PlainWrite]


class Grammar:
    """Reads a decoded body as docs/reference/http.md 3 and 4 say, item by item."""

    def __init__(self, *, packed: bool, rows_max: int) -> None:
        self._packed = packed
        self._rows_max = rows_max

    def read(self, body: dict[Any, Any]) -> PlainBody:
        """Return the transaction of a body.

        Raises:
            Refused: the grammar has no such body.
            Unclear: it depends on the release of Python whether it has.
        """
        if not body.keys() <= {"compare", "ops"}:
            raise Refused
        lists = [body.get(name, ()) for name in ("compare", "ops")]
        if not all(isinstance(each, list | tuple) and len(each) <= self._rows_max for each in lists) or not any(lists):
            raise Refused
        compare = [self._at(f"compare[{at}]", self._compare, each) for at, each in enumerate(lists[0])]
        return PlainBody(compare, [self._at(f"ops[{at}]", self._write, each) for at, each in enumerate(lists[1])])

    def _at(self, place: str, read: Any, item: Any) -> Any:
        try:
            return read(item)
        except Refused:
            raise Refused(place) from None

    def _compare(self, item: Any) -> tuple[str, bytes, Any]:
        more = {"absent": [], "present": [], "value": ["value"], "seq": ["seq"]}
        kind, key, *rest = self._fields(item, "check", {name: ["key", *each] for name, each in more.items()})
        key = self._bytes(key)
        if not key:
            raise Refused
        if kind == "value":
            return kind, key, self._bytes(rest[0])
        return kind, key, self._number(rest[0], SEQ_MAX) if kind == "seq" else None

    def _write(self, item: Any) -> PlainWrite:
        if isinstance(item, dict) and item.get("op") in ("put", "merge"):
            times = [{"expire_at": item["expire_at"]}] if item.get("expire_at") is not None else []
            times += [item["ttl_ms"]] if item.get("ttl_ms") is not None else []
            if len(times) > 1:
                raise Refused
            item = {name: each for name, each in item.items() if name not in ("ttl_ms", "expire_at")}
            kind, *rest = self._fields(item, "op", {"put": ["key", "value"], "merge": ["key", "value"]})
            item = [kind, *rest, *times]
        optional = list(item[3:4]) if isinstance(item, list | tuple) else []
        if optional and item[0] in ("put", "merge"):
            item = [*item[:3], *item[4:]]
        shapes = {"put": ["key", "value"], "merge": ["key", "value"], "delete": ["key"]}
        kind, key, *rest = self._fields(item, "op", shapes)
        value = self._bytes(rest[0]) if rest else b""
        ttl_ms, expire_at = self._times(optional[0] if optional else None)
        return PlainWrite(kind, self._bytes(key), value, ttl_ms, expire_at)

    def _fields(self, item: Any, name: str, shapes: dict[str, list[str]]) -> list[Any]:
        """Return the array of an item, which may be an object."""
        kind = (
            item.get(name) if isinstance(item, dict) else item[0] if isinstance(item, list | tuple) and item else None
        )
        if not isinstance(kind, str) or kind not in shapes:
            raise Refused
        if isinstance(item, dict):
            if not item.keys() <= {name, *shapes[kind]}:
                raise Refused
            return [kind, *(item.get(each) for each in shapes[kind])]
        if len(item) != 1 + len(shapes[kind]):
            raise Refused
        return list(item)

    def _times(self, value: Any) -> tuple[int | None, int | None]:
        if value is None:
            return None, None
        if value == "never":
            return -1, None
        if isinstance(value, dict):
            if list(value) != ["expire_at"]:
                raise Refused
            return None, self._number(value["expire_at"], _TIME_MAX)
        return self._number(value, TTL_MAX), None

    def _number(self, value: Any, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value or not 0 <= value <= most:
            raise Refused
        if int(value) != value:
            raise Refused
        return int(value)

    def _bytes(self, value: Any) -> bytes:
        if self._packed:
            if not isinstance(value, bytes):
                raise Refused
            return value
        if not isinstance(value, str):
            raise Refused
        if _EXCESS.fullmatch(value) is not None:
            raise Unclear
        if _BASE64.fullmatch(value) is None:
            raise Refused
        return base64.b64decode(value)
