"""The HTTP interface of the writer, as a process, on the directory store."""

import base64
import contextlib
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.integration.daemons.daemon_process import metric
from tests.integration.writer.writer_process import Client, kv, problem, writer


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    limits = ["--set", "http.max_body_bytes=1MiB", "--set", "http.max_batch_rows=5000"]
    with writer(tmp_path_factory.mktemp("writer"), *limits) as one:
        yield one


@pytest.mark.parametrize(
    "key",
    [b"a", b"user/1", b"a b%c?d#e", bytes(range(256)), b"\n", b"..", b"/", b"\xff\xfe", "schlüssel".encode()],
    ids=repr,
)
def test_any_bytes_can_be_a_key(client: Client, key: bytes) -> None:
    value = b"value of " + key
    assert client.put(key, value)[0] == 204
    status, body, headers = client.get(key)
    assert (status, body) == (200, value)
    assert int(headers["x-shale-seq"]) > 0
    assert abs(int(headers["x-shale-create-ts"]) - time.time() * 1000) < 60_000
    assert client.call("DELETE", kv(key))[0] == 204
    problem(client.get(key), 404)


def test_a_slash_may_stand_as_it_is(client: Client) -> None:
    client.put(b"path/to/row", b"1")
    assert client.call("GET", "/v1/kv/path/to/row")[1] == b"1"


def test_sequence_numbers_ascend(client: Client) -> None:
    seqs = [int(client.put(b"seq", b"%d" % turn, X_Shale_Durability="memory")[2]["x-shale-seq"]) for turn in range(5)]
    assert seqs == sorted(set(seqs))


def test_a_lifetime_is_answered_as_a_time(client: Client) -> None:
    client.put(b"mortal", b"x", X_Shale_TTL_Ms="60000")
    headers = client.get(b"mortal")[2]
    assert int(headers["x-shale-expire-ts"]) - int(headers["x-shale-create-ts"]) == 60_000


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("PUT", "/v1/kv/", {}, 400, id="empty key"),
        pytest.param("PUT", "/v1/kv/a", {"X-Shale-Durability": "maybe"}, 400, id="unknown durability"),
        pytest.param("PUT", "/v1/kv/a", {"X-Shale-TTL-Ms": "-1"}, 400, id="negative lifetime"),
        pytest.param("PUT", "/v1/kv/a", {"X-Shale-TTL-Ms": "\xb2"}, 400, id="a digit that is no number"),
        pytest.param("PUT", "/v1/kv/a", {"X-Shale-TTL-Ms": "9" * 5000}, 400, id="endless lifetime"),
        pytest.param("PUT", "/v1/kv/a?ttl=1h", {}, 400, id="a lifetime in the wrong place"),
        pytest.param("PATCH", "/v1/kv/a", {}, 400, id="a merge where no operator is"),
        pytest.param("OPTIONS", "/v1/kv/a", {}, 405, id="wrong method"),
        pytest.param("PUT", "/v1/kv/a", {"X-Shale-TTL-Ms": "1", "X-Shale-Expire-At": "1"}, 400, id="two lifetimes"),
        pytest.param("GET", "/v1/batch", {}, 405, id="a call that needs POST"),
        pytest.param("GET", "/v2/kv/a", {}, 404, id="no such call"),
        pytest.param("POST", "/v1/batch", {"Content-Type": "text/plain"}, 415, id="unknown media type"),
    ],
)
def test_bad_requests_get_a_problem_document(
    client: Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = client.daemon.request(
        method, path, port=client.port, body=None if method == "GET" else b"x", headers=headers
    )
    assert not problem(answer, status)["retryable"]


def test_a_key_over_the_limit_is_refused_and_nothing_written(client: Client) -> None:
    key = b"k" * 65_536
    answer = client.post("/v1/batch", {"ops": [["put", b64(b"fine"), ""], ["put", b64(key), ""]]})
    assert "65536 bytes" in problem(answer, 400)["detail"]
    problem(client.get(b"fine"), 404)


@pytest.mark.parametrize("packed", [False, True], ids=["json", "msgpack"])
def test_a_batch_is_one_commit(client: Client, packed: bool) -> None:
    def data(text: bytes) -> Any:
        return text if packed else b64(text)

    client.put(b"batch/gone", b"x")
    ops = [
        ["put", data(b"batch/1"), data(b"one")],
        ["put", data(b"batch/2"), data(b"two"), 60_000],
        ["delete", data(b"batch/gone")],
        ["put", data(b"batch/1"), data(b"uno")],
    ]
    status, body, headers = client.post("/v1/batch", {"ops": ops}, packed=packed)
    assert status == 200, body
    fields = msgpack.unpackb(body) if packed else json.loads(body)
    assert fields["rows"] == 3
    assert str(fields["seq"]) == headers["x-shale-seq"] == client.get(b"batch/1")[2]["x-shale-seq"]
    assert client.get(b"batch/1")[1] == b"uno"
    assert client.get(b"batch/2")[2]["x-shale-seq"] == headers["x-shale-seq"]
    problem(client.get(b"batch/gone"), 404)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param([1], "not an object", id="not an object"),
        pytest.param({"ops": []}, "empty", id="empty"),
        pytest.param({"ops": 3}, "a list of operations", id="no list"),
        pytest.param({"opps": []}, "opps: no such field", id="misspelt"),
        pytest.param({"ops": [["put", "YQ==", "YQ=="], ["increase", "YQ==", "YQ=="]]}, "ops[1]", id="unknown"),
        pytest.param({"ops": [["put", "%%", "YQ=="]]}, "ops[0] key: not base64", id="not base64"),
        pytest.param({"ops": [["put", "YQ==", "YQ==", "soon"]]}, "ops[0] ttl_ms", id="bad lifetime"),
        pytest.param({"ops": [["put", "", "YQ=="]]}, "key of 0 bytes", id="empty key"),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(client: Client, fields: Any, words: str) -> None:
    assert words in problem(client.post("/v1/batch", fields), 400)["detail"]


def test_bodies_are_bounded(client: Client) -> None:
    problem(client.put(b"large", b"x" * (1 << 20 | 1)), 413)
    assert client.put(b"large", b"x" * (1 << 20))[0] == 204
    problem(client.post("/v1/batch", {"ops": [["delete", "YQ=="]] * 5001}), 413)

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 65_536

    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    with contextlib.closing(connection):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request("PUT", kv(b"endless"), body=chunks(), encode_chunked=True)
        with contextlib.suppress(ConnectionResetError):
            assert connection.getresponse().status == 413
    problem(client.get(b"endless"), 404)


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"{", "application/json"),
        (b"\xc1\xff", "application/msgpack"),
        (b"\x92", "application/msgpack"),
        (b"\x82\xa1x\x01\xc4\x01y\x02", "application/msgpack"),
    ],
)
def test_malformed_bodies_are_refused(client: Client, body: bytes, media_type: str) -> None:
    problem(client.call("POST", "/v1/batch", body, Content_Type=media_type), 400)


@pytest.mark.parametrize("packed", [False, True], ids=["json", "msgpack"])
def test_many_keys_in_one_trip(client: Client, packed: bool) -> None:
    for key in (b"many/1", b"many/3"):
        client.put(key, key.upper())
    keys = [b"many/3", b"many/2", b"many/1", b"many/3"]
    body = client.post("/v1/get-many", {"keys": keys if packed else [b64(key) for key in keys]}, packed=packed)[1]
    if packed:
        assert msgpack.unpackb(body)["values"] == [b"MANY/3", None, b"MANY/1", b"MANY/3"]
    else:
        assert json.loads(body)["values"] == [b64(b"MANY/3"), None, b64(b"MANY/1"), b64(b"MANY/3")]


def test_scan_streams_rows_and_says_how_it_ended(client: Client) -> None:
    rows = {b"scan/%05d" % turn: b"v%d" % turn for turn in range(3000)}
    ops = [["put", key, value] for key, value in rows.items()]
    assert client.post("/v1/batch", {"ops": ops}, packed=True)[0] == 200

    *lines, end = client.scan(prefix=b64(b"scan/"))
    assert end == {"end": True, "rows": 3000, "resume": None}
    assert {base64.b64decode(line["key"]): base64.b64decode(line["value"]) for line in lines} == rows
    assert [line["key"] for line in lines] == [b64(key) for key in sorted(rows)]
    assert {"seq", "create_ts"} < set(lines[0])

    *lines, end = client.scan(start=b64(b"scan/00010"), stop=b64(b"scan/00020"))
    assert [base64.b64decode(line["key"])[-2:] for line in lines] == [b"%d" % turn for turn in range(10, 20)]
    assert client.scan(prefix=b64(b"nothing"))[-1] == {"end": True, "rows": 0, "resume": None}


def test_a_scan_resumes_where_it_stopped(client: Client) -> None:
    client.post("/v1/batch", {"ops": [["put", b"page/%d" % turn, b"v"] for turn in range(10)]}, packed=True)
    seen: list[bytes] = []
    token, turns = None, 0
    while turns == 0 or token is not None:
        *lines, end = client.scan(prefix=b64(b"page/"), limit=4, **({"resume": token} if token else {}))
        seen += [base64.b64decode(line["key"]) for line in lines]
        token, turns = end["resume"], turns + 1
    assert seen == [b"page/%d" % turn for turn in range(10)]
    assert turns == 3


@pytest.mark.parametrize(
    "fields",
    [{"limit": -1}, {"limit": "3"}, {"start": 3}, {"prefx": "YQ=="}, {"resume": "xx"}, {"reverse": 1}, {"after": ""}],
    ids=str,
)
def test_a_bad_scan_is_refused(client: Client, fields: dict[str, Any]) -> None:
    problem(client.post("/v1/scan", fields), 400)


def test_disconnected_clients_leave_no_requests_open(client: Client) -> None:
    client.post("/v1/batch", {"ops": [["put", b"gone/%04d" % turn, b"x" * 200] for turn in range(4000)]}, packed=True)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", client.port)) as half:
            half.sendall(b"PUT /v1/kv/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc")
        with socket.create_connection(("127.0.0.1", client.port)) as reader:
            reader.sendall(b"POST /v1/scan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
            reader.recv(10)
    deadline = time.monotonic() + 60
    while metric(client.metrics(), "shale_http_requests_inflight") > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    problem(client.get(b"half"), 404)
    assert not [line for line in client.daemon.lines() if line["level"] in ("error", "critical")]


@pytest.mark.slow
def test_a_client_that_falls_silent_holds_no_place(tmp_path: Path) -> None:
    limits = ["--set", "http.request_timeout=1s", "--set", "http.max_concurrent_requests=1"]
    with writer(tmp_path, *limits) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as silent:
            silent.sendall(b"PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
            assert silent.recv(1024).startswith(b"HTTP/1.1 408 ")
        assert client.put(b"b", b"whole")[0] == 204
        problem(client.get(b"a"), 404)


def test_the_description_is_valid_and_names_every_call(client: Client) -> None:
    spec_validator = pytest.importorskip("openapi_spec_validator")
    document = json.loads(client.call("GET", "/openapi.json")[1])
    spec_validator.validate(document)
    assert document["openapi"].startswith("3.1")
    snapshots = {"snapshots", "snapshots/{id}"}
    calls = {"batch", "get-many", "scan", "scan-page", "txn", *snapshots, "kv/{key}", "writer"}
    assert set(document["paths"]) == {f"/v1/{call}" for call in calls}


def test_status_and_metrics(client: Client) -> None:
    client.put(b"status", b"x")
    status = json.loads(client.daemon.get("/statusz", port=client.admin_port)[1])
    assert status["durable_seq"] <= status["last_seq"]
    assert status["writer_epoch"] >= 1
    text = client.metrics()
    assert 'shale_http_requests_total{category="write",db="orders",route="kv",status="2xx"}' in text
    assert metric(text, "slatedb_db_write_ops_total") > 0
    assert re.search(r'slatedb_db_request_duration_seconds_count\{db="orders",op="put"\} [1-9]', text)
    assert metric(text, "shale_metrics_sample_ratio") == 1


def test_a_request_has_an_id(client: Client) -> None:
    assert client.put(b"id", b"x", X_Request_Id="mine-1")[2]["x-request-id"] == "mine-1"
    assert len(client.get(b"id")[2]["x-request-id"]) == 26
    assert client.get(b"no such")[2]["x-request-id"] != client.get(b"id")[2]["x-request-id"]


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "writer__http__bearer_token").write_text("hunter2\n")
    with writer(tmp_path, env={"SHALE_SECRETS_DIR": str(secrets)}) as client:
        answer = client.put(b"a", b"1")
        assert problem(answer, 401)["kind"] == "invalid"
        assert answer[2]["www-authenticate"] == "Bearer"
        assert client.put(b"a", b"1", Authorization="Bearer wrong")[0] == 401
        assert client.put(b"a", b"1", Authorization="Bearer hunter2")[0] == 204
        assert client.daemon.get("/readyz", port=client.admin_port)[0] == 200
        assert "hunter2" not in client.daemon.log.read_text()
