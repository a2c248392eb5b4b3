"""A writer as a process, and its client."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import msgpack

from tests.integration.daemons.daemon_process import Daemon, running

WRITER = "shale_writer"
Answer = tuple[int, bytes, dict[str, str]]


class Client:
    """A client of one writer."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.port = daemon.port("port")
        self.admin_port = daemon.port("admin_port")

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.daemon.request(method, path, port=self.port, body=body, headers=sent)

    def put(self, key: bytes, value: bytes, **headers: str) -> Answer:
        return self.call("PUT", kv(key), value, **headers)

    def get(self, key: bytes) -> Answer:
        return self.call("GET", kv(key))

    def post(self, path: str, fields: Any, *, packed: bool = False, **headers: str) -> Answer:
        body = msgpack.packb(fields) if packed else json.dumps(fields).encode()
        media_type = "application/msgpack" if packed else "application/json"
        return self.call("POST", path, body, Content_Type=media_type, **headers)

    def scan(self, **fields: Any) -> list[dict[str, Any]]:
        status, body, headers = self.post("/v1/scan", fields)
        assert status == 200, body
        assert headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in body.splitlines()]

    def metrics(self) -> str:
        return self.daemon.get("/metrics", port=self.admin_port)[1]


def kv(key: bytes) -> str:
    return "/v1/kv/" + quote_from_bytes(key, safe="")


@contextlib.contextmanager
def writer(
    directory: Path, *args: str, log: str = "log", env: dict[str, str] | None = None, is_fresh: bool = False
) -> Iterator[Client]:
    url = f"file://{directory}/store/orders"
    command = (WRITER, "--url", url, "--port", "0", *args)
    with running(*command, log=directory / log, env=env, is_fresh=is_fresh) as daemon:
        yield Client(daemon)


def problem(answer: Answer, status: int) -> dict[str, Any]:
    assert answer[0] == status, answer
    assert answer[2]["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(answer[1])
    assert document["status"] == status
    assert set(document) == {"type", "title", "status", "detail", "kind", "retryable"}
    return document
