"""The HTTP interface, called as an ASGI application without sockets."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import msgpack

import shale
from shale.api.build import build_writer_api
from shale.api.settings import WritesHttpSection
from shale.errors import InvalidRequestError
from shale.testing.model import Op, Span
from shale.types import Row
from tests.model.adapters import AsyncAdapter, Pairs, Run
from tests.model.harness import Harness

_PACKED = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
_SETTINGS = WritesHttpSection(max_snapshot_lifetime=1e9)


class HttpAdapter(AsyncAdapter):
    """The library does what HTTP lacks: sequence numbers of commits and transactions that stay open.

    ``snapshot_id``: reads look there.
    """

    def __init__(self, db: Any, run: "Run[Any]", client: httpx.AsyncClient, snapshot: Any = None) -> None:
        super().__init__(db, run)
        self._client = client
        self._snapshot = snapshot

    @classmethod
    def of(cls, db: shale.Db, harness: Harness) -> "HttpAdapter":
        """Return an adapter of an open database."""
        process = harness.process
        app = build_writer_api(db, _SETTINGS, process.metrics, process.env, max_key_bytes=65_535)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://writer")
        return cls(db, harness.run, client)

    def put(self, key: bytes, value: bytes, ttl_ms: int | None, durable: bool) -> tuple[int, int]:
        life = {} if ttl_ms is None else {"X-Shale-TTL-Ms": str(ttl_ms)}
        return self._write("PUT", key, value, durable, life)

    def delete(self, key: bytes) -> tuple[int, int]:
        return self._write("DELETE", key, b"", False)

    def merge(self, key: bytes, operand: bytes) -> tuple[int, int]:
        return self._write("PATCH", key, operand, False)

    def write(self, ops: Sequence[Op], seq: int | None) -> tuple[int, int]:
        if seq is not None:
            return super().write(ops, seq)
        answer = self._post("batch", {"ops": [_packed(op) for op in ops]}, {"X-Shale-Durability": "memory"})
        return answer["seq"], answer["create_ts"]

    def compare_and_set(self, key: bytes, expected: bytes | None, ops: Sequence[Op]) -> tuple[int, int] | None:
        compare = [["absent", key]] if expected is None else [["value", key, expected]]
        body = {"compare": compare, "ops": [_packed(op) for op in ops]}
        answer = self._ask("POST", "/v1/txn", msgpack.packb(body), {**_PACKED, "X-Shale-Durability": "memory"})
        if answer.status_code == 412:
            assert answer.json()["failed"] == [0]
            return None
        fields = msgpack.unpackb(_fine(answer).content)
        return fields["seq"], fields["create_ts"]

    def get(self, key: bytes, **options: Any) -> bytes | None:
        answer = self._row(key, **options)
        return None if answer is None else answer.content

    def get_row(self, key: bytes) -> Row | None:
        answer = self._row(key)
        if answer is None:
            return None
        seq, created, expires = (answer.headers.get(f"X-Shale-{name}") for name in ("Seq", "Create-Ts", "Expire-Ts"))
        return Row(key, answer.content, int(seq or 0), *(None if ms is None else int(ms) for ms in (created, expires)))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._post("get-many", {"keys": list(keys)})["values"]
        return values

    def scan(self, span: Span, *, reverse: bool, limit: int | None, **options: Any) -> Pairs:
        if options:
            return super().scan(span, reverse=reverse, limit=limit, **options)
        wanted = {"start": span.start, "stop": span.stop, "prefix": span.prefix, "reverse": reverse, "limit": limit}
        body = {name: value for name, value in wanted.items() if value is not None}
        answer = _fine(self._ask("POST", "/v1/scan" + self._query(), msgpack.packb(body), _PACKED))
        stream = msgpack.Unpacker()
        stream.feed(answer.content)
        *rows, ending = list(stream)
        assert ending["end"], ending
        assert ending["rows"] == len(rows)
        return [(row[0], row[1]) for row in rows]

    def snapshot(self, *, durable: bool) -> "HttpAdapter":
        headers = {"X-Shale-Durability": "durable" if durable else "memory"}
        return HttpAdapter(self.db, self._run, self._client, self._post("snapshots", {}, headers))

    def close(self) -> None:
        _fine(self._ask("DELETE", f"/v1/snapshots/{self._snapshot['id']}", b"", {}))

    @property
    def seq(self) -> int:
        return int(self._snapshot["seq"])

    def _row(self, key: bytes, **options: Any) -> httpx.Response | None:
        headers = {f"X-Shale-{name.capitalize()}": value for name, value in options.items()}
        answer = self._ask("GET", _path(key) + self._query(), b"", headers)
        return None if answer.status_code == 404 else _fine(answer)

    def _query(self) -> str:
        return "" if self._snapshot is None else f"?snapshot={self._snapshot['id']}"

    def _write(
        self, method: str, key: bytes, body: bytes, durable: bool, headers: dict[str, str] | None = None
    ) -> tuple[int, int]:
        durability = {"X-Shale-Durability": "durable" if durable else "memory"}
        answer = _fine(self._ask(method, _path(key), body, {**durability, **(headers or {})}))
        return int(answer.headers["X-Shale-Seq"]), int(answer.headers["X-Shale-Create-Ts"])

    def _post(self, name: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        path = f"/v1/{name}" + (self._query() if name == "get-many" else "")
        answer = self._ask("POST", path, msgpack.packb(body), {**_PACKED, **(headers or {})})
        return msgpack.unpackb(_fine(answer).content)

    def _ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
        async def ask() -> httpx.Response:
            return await self._client.request(method, path, content=body, headers=headers)

        answer: httpx.Response = self._run(ask)
        return answer


def _path(key: bytes) -> str:
    return "/v1/kv/" + quote_from_bytes(key, safe="")


def _packed(op: Op) -> list[Any]:
    if op.kind == "delete":
        return ["delete", op.key]
    return [op.kind, op.key, op.value, *(() if op.ttl_ms is None else (op.ttl_ms,))]


def _fine(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        raise InvalidRequestError(f"{answer.status_code}: {answer.text}")
    return answer
