"""Requests to writers and readers over HTTP: one attempt each, so that every outcome is that of one request."""

import http.client
from typing import Any
from urllib.parse import quote

import msgpack

from tests.soak.clients.session import Address, Result, Shared
from tests.soak.history.operation import Outcome

TIMEOUT_S = 12.0
PACKED = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
DURABLE = {"X-Shale-Durability": "durable"}
REJECTED = frozenset({400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 422, 429})
"""With these a write had no effect."""


class HttpRequests:
    """A connection to one instance; after an error the next request asks another one."""

    def __init__(self, shared: Shared, kind: str) -> None:
        self._shared = shared
        self._kind = kind
        self._connection: http.client.HTTPConnection | None = None
        self._address: Address | None = None
        self._turn = 0
        self.refused: dict[str, int] = {}
        """How often requests did not succeed, by call and response."""

    @property
    def served_by(self) -> str:
        """Return the instance that is asked."""
        return self._address.instance if self._address is not None else ""

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[Result, bytes, int]:
        """Send one request; ``Result.outcome`` is that of a write."""
        connection = self._connect()
        instance = self.served_by
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._shared.token}", **headers})
            response = connection.getresponse()
            content = response.read()
        except ConnectionRefusedError:
            self.close()
            return Result("fail", None, instance), b"", 0
        except (OSError, http.client.HTTPException):
            self.close()
            return Result("unknown", None, instance), b"", 0
        outcome = outcome_of(response.status, content)
        if outcome != "ok" and response.status not in (404, 409, 412):
            call = f"{method} {path.partition('?')[0][:14]} {response.status} {content[:160]!r}"
            self.refused[call] = self.refused.get(call, 0) + 1
        if outcome != "ok" and response.status not in (404, 409, 412):
            self.close()
        return Result(outcome, None, instance), content, response.status

    def call(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[Result, Any, int]:
        """Send a body in msgpack and return the decoded answer."""
        packed = msgpack.packb(body)
        result, content, status = self.ask("POST", path, packed, {**PACKED, **(headers or {})})
        return result, msgpack.unpackb(content) if result.outcome == "ok" and content else None, status

    def get(self, key: str) -> tuple[Result, bytes | None]:
        """Read one durable row."""
        result, content, status = self.ask("GET", path_of(key), None, DURABLE)
        if status == 404:
            return Result("ok", None, result.served_by), None
        return result, content if status == 200 else None

    def get_many(self, keys: list[str]) -> tuple[Result, list[bytes | None]]:
        """Read several durable rows of one state."""
        result, answer, _ = self.call("/v1/get-many", {"keys": [key.encode() for key in keys]}, DURABLE)
        return result, answer["values"] if answer is not None else []

    def scan(self, prefix: str, how: str) -> tuple[Result, dict[str, bytes]]:
        """Read all durable rows below a prefix, by ``scan``, ``scan-page`` or from a snapshot."""
        if how == "scan-page":
            body = {"prefix": prefix.encode(), "limit": 1000}
            result, answer, _ = self.call("/v1/scan-page", body, DURABLE)
            rows = [] if answer is None else [(row["key"], row["value"]) for row in answer["rows"]]
            return result, {key.decode(): value for key, value in rows}
        query = ""
        if how == "snapshot":
            result, answer, _ = self.call("/v1/snapshots", {"lifetime_ms": 20_000}, DURABLE)
            if answer is None:
                return Result("fail", None, result.served_by), {}
            query = f"?snapshot={answer['id']}"
        packed = msgpack.packb({"prefix": prefix.encode()})
        result, content, _ = self.ask("POST", f"/v1/scan{query}", packed, {**PACKED, **({} if query else DURABLE)})
        found = rows_of(content) if result.outcome == "ok" else None
        if query:
            self.ask("DELETE", f"/v1/snapshots/{query.partition('=')[2]}", None, {})
        if found is None:
            return Result("fail", None, result.served_by), {}
        return result, found

    def report(self, name: str) -> None:
        """Write to the log of the process which requests did not succeed."""
        for call, count in sorted(self.refused.items()):
            print(f"{name}: {count} times {call}", flush=True)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            addresses = self._shared.addresses(self._kind)
            self._turn += 1
            self._address = addresses[self._turn % len(addresses)]
            self._connection = http.client.HTTPConnection(self._address.http, timeout=TIMEOUT_S)
        return self._connection


def rows_of(content: bytes) -> dict[str, bytes] | None:
    """Decode a scan; ``None`` if it was interrupted."""
    stream = msgpack.Unpacker()
    stream.feed(content)
    items = list(stream)
    if not items or not isinstance(items[-1], dict) or not items[-1].get("end"):
        return None
    return {row[0].decode(): row[1] for row in items[:-1]}


def outcome_of(status: int, content: bytes) -> Outcome:
    """Return what is known about a write from its response.

    A standby and a process that drains refuse before they write; other 503, and 421, may come from a write whose
    request to the store was sent.
    """
    if status in (200, 201, 204):
        return "ok"
    if status in REJECTED or (status == 503 and b'"active"' in content):
        return "fail"
    return "unknown"


def path_of(key: str) -> str:
    """Return the path of a row."""
    return "/v1/kv/" + quote(key, safe="")
