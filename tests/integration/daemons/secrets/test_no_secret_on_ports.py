"""Tokens that clients send, right ones and wrong ones, are in no log, metric, page, audit log and bundle."""

import base64
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.secrets.planted_secrets import TOKENS, assert_clean, run
from tests.integration.writer.writer_process import Client, writer

WRONG = "planted-wrong"
RIGHT = ("planted-read-1", "planted-read-2", "planted-write", "planted-admin", "planted-http-bearer")
BASIC = base64.b64encode(f"user:{WRONG}".encode()).decode()
HEADERS = (
    {},
    *({"Authorization": f"Bearer {token}"} for token in (*RIGHT, WRONG, f"{WRONG} twice", "planted-\xe9")),
    {"Authorization": WRONG},
    {"Authorization": f"Basic {BASIC}"},
    {"Cookie": f"token={WRONG}"},
    {"X-Api-Key": WRONG},
    {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": WRONG},
)
QUERY = f"?token={WRONG}&access_token={WRONG}&key=a"
DATA_CALLS = [
    *(("GET", f"/v1/{path}") for path in ("kv/a", f"kv/a{QUERY}", f"writer{QUERY}", f"no-such-call{QUERY}")),
    *(("POST", f"/v1/{path}") for path in ("batch", f"batch{QUERY}", f"scan{QUERY}")),
    ("PUT", f"/v1/kv/a{QUERY}"),
]
ADMIN_CALLS = [
    *(("GET", f"/v1/admin/{path}{QUERY}") for path in ("log-level", "checkpoints", "no-such-call")),
    *(("POST", f"/v1/admin/{path}{QUERY}") for path in ("flush", "checkpoints", "no-such-call")),
    ("PUT", f"/v1/admin/log-level{QUERY}"),
    ("DELETE", f"/v1/admin/checkpoints/x{QUERY}"),
    *(("GET", f"/{path}{QUERY}") for path in ("statusz", "metrics", "", "console/events", "console/candidates")),
]
RAW = [
    f"GET /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nAuthorization {WRONG}\r\n\r\n",
    f"GET /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRONG}\x01\r\n\r\n",
    f"GET http://user:{WRONG}@127.0.0.1/v1/kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    f"{WRONG} /v1/kv/a\r\n\r\n",
]
BEFORE_AUTH = [
    ("AUTH", WRONG),
    ("AUTH", "read", WRONG),
    ("AUTH", "stranger", WRONG),
    ("AUTH", "read", WRONG, WRONG),
    ("HELLO", "3", "AUTH", "default", WRONG),
    ("HELLO", "9", "AUTH", "default", WRONG),
    ("AUHT", WRONG),
    ("SET", "a", WRONG),
]
AFTER_AUTH = [
    ("CLIENT", "LIST"),
    ("CLIENT", "INFO"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "requirepass", WRONG),
    ("INFO",),
    ("MONITOR",),
    ("SLOWLOG", "GET"),
    ("ACL", "LIST"),
    ("ACL", "WHOAMI"),
    ("ACL", "GETUSER", "default"),
    ("ACL", "SETUSER", "default", f">{WRONG}"),
    ("COMMAND", "DOCS", "auth"),
    ("AUTH", WRONG),
    ("AUTH", "read", "planted-read-1"),
    ("FLUSHALL",),
    ("EVAL", f"return '{WRONG}'", "0"),
    ("DEBUG", "OBJECT", "a"),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    variables = TOKENS | {
        "SHALE_LOG__LEVEL": "debug",
        "SHALE_AUDIT__FILE": str(tmp_path / "audit"),
        "SHALE_QUOTAS__READ__REQUESTS_PER_SECOND": "5",
    }
    with writer(tmp_path, "--set", "resp.enabled=true", "--set", "resp.port=0", env=variables) as client:
        yield client


def answer(client: Client, port: int, method: str, path: str, headers: dict[str, str]) -> str:
    body = f'{{"token": "{WRONG}"}}'.encode() if method in ("POST", "PUT") else None
    status, text, answered = client.daemon.request(method, path, port=port, body=body, headers=headers)
    assert status != 500
    return f"{answered} {text.decode()}"


def exchange(port: int, *requests: str) -> str:
    """Send requests on one connection; return what comes within a short time, or until it closes."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        for request in requests:
            connection.sendall(request.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        while chunk := connection.recv(1 << 16):
            found += chunk
    return found.decode("latin-1")


def resp(*arguments: str) -> str:
    return f"*{len(arguments)}\r\n" + "".join(f"${len(each)}\r\n{each}\r\n" for each in arguments)


def everything(tmp_path: Path, client: Client) -> Iterator[tuple[str, str]]:
    """Yield what the process has written and shows, and a bundle of it."""
    yield "log", client.daemon.log.read_text()
    yield "audit", (tmp_path / "audit").read_text()
    for path in ("metrics", "statusz", "readyz?verbose", "livez?verbose"):
        yield path, client.daemon.get(f"/{path}", port=client.admin_port)[1]
    bundle = tmp_path / "bundle.tar.gz"
    daemon = f"http://user:{WRONG}@127.0.0.1:{client.admin_port}"
    logs = ("--log", str(client.daemon.log), "--log", str(tmp_path / "audit"))
    where = ("-f", str(bundle), *logs, "--daemon", daemon, "-u", f"file://{tmp_path}/store/orders")
    yield "debug bundle", run(tmp_path, "debug", "bundle", *where)
    with tarfile.open(bundle) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            yield member.name, member.name + file.read().decode()


@pytest.mark.slow
def test_tokens_of_requests_are_nowhere(tmp_path: Path, served: Client) -> None:
    for calls, port in ((DATA_CALLS, served.port), (ADMIN_CALLS, served.admin_port)):
        for method, path in calls:
            for headers in HEADERS:
                if path.startswith("/console/events") and "planted" in str(headers):
                    continue  # an answer without an end
                assert_clean(answer(served, port, method, path, headers), f"{method} {path}")
        for request in RAW:
            assert_clean(exchange(port, request), request)
    port = served.daemon.port("resp_port")
    for command in BEFORE_AUTH:
        assert_clean(exchange(port, resp(*command)), str(command))
    assert_clean(exchange(port, f"AUTH {WRONG}\r\n"), "an inline command")
    commands = [resp(*command) for command in AFTER_AUTH]
    answers = exchange(port, resp("AUTH", "planted-write"), *commands)
    assert answers.startswith("+OK\r\n")
    assert answers.count("\r\n") > len(commands)
    assert_clean(answers, "RESP")
    for what, text in everything(tmp_path, served):
        assert text
        assert_clean(text, what)
    assert '"event":"admin.call.refused"' in (tmp_path / "audit").read_text()
    assert "?token=***&access_token=***&key=a" in (tmp_path / "audit").read_text()
