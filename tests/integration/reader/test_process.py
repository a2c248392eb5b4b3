"""The reader as a process, beside a writer: its rows, their age, and its remains after the end."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import redis

import shale
from tests.integration.daemons.daemon_process import ENDED_S, Daemon, metric, running
from tests.integration.writer.writer_process import Client, kv, problem, writer

WAIT_S = 120.0


@contextlib.contextmanager
def reader(directory: Path, *args: str, log: str = "reader", env: dict[str, str] | None = None) -> Iterator[Client]:
    url = f"file://{directory}/store/orders"
    options = ("--url", url, "--port", "0", "--set", "manifest_poll_interval=100ms", *args)
    with running("shale_reader", *options, log=directory / log, env=env) as daemon:
        yield Client(daemon)


def until_found(client: Client, key: bytes) -> bytes:
    deadline = time.monotonic() + WAIT_S
    while (answer := client.get(key))[0] == 404:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert answer[0] == 200, answer
    return answer[1]


def checkpoints(directory: Path) -> int:
    async def count() -> int:
        url = f"file://{directory}/store/orders"
        async with shale.DbReader.open(url, follow_latest=True) as db:
            return sum(entry.writer_epoch is None for entry in db.manifest.checkpoints)

    return anyio.run(count)


def status(client: Client) -> dict[str, object]:
    found: dict[str, object] = json.loads(client.daemon.get("/statusz", port=client.admin_port)[1])
    return found


def test_a_reader_follows_the_writer_and_gives_its_checkpoint_back(tmp_path: Path) -> None:
    with writer(tmp_path) as source, reader(tmp_path) as client:
        assert source.put(b"a", b"1")[0] == 204
        assert until_found(client, b"a") == b"1"
        *lines, end = client.scan()
        assert (len(lines), end["rows"]) == (1, 1)
        assert checkpoints(tmp_path) == 1
        told = status(client)
        assert told["checkpoint"] is not None
        assert told["role"] == "reader"
        assert isinstance(told["lag_s"], float)
        assert told["lag_s"] < 30
        text = client.metrics()
        assert abs(metric(text, "slatedb_reader_visible_timestamp_seconds") - time.time()) < 30
        assert 'shale_http_requests_total{category="read",db="orders",route="kv",status="2xx"}' in text
        assert client.daemon.stop() == 0
        assert checkpoints(tmp_path) == 0


@pytest.mark.parametrize(
    ("method", "path", "refusal"), [("PUT", kv(b"a"), 405), ("DELETE", kv(b"a"), 405), ("POST", "/v1/batch", 404)]
)
def test_a_reader_takes_no_writes(tmp_path: Path, method: str, path: str, refusal: int) -> None:
    with writer(tmp_path), reader(tmp_path) as client:
        problem(client.call(method, path, b"x"), refusal)


@pytest.mark.slow
@pytest.mark.parametrize("by_name", [False, True])
def test_a_pinned_reader_serves_its_checkpoint_and_leaves_it(tmp_path: Path, by_name: bool) -> None:
    url = f"file://{tmp_path}/store/orders"

    async def prepare() -> str:
        async with shale.Db.open(url) as db:
            await db.put(b"a", b"old")
            checkpoint = await db.checkpoint(name="before")
            await db.put(b"a", b"new")
            return "before" if by_name else str(checkpoint.id)

    pinned = anyio.run(prepare)
    with reader(tmp_path, "--set", f"checkpoint={pinned}", "--set", "ready.max_lag=1ms") as client:
        assert client.get(b"a")[1] == b"old"
        assert client.daemon.get("/readyz", port=client.admin_port)[0] == 200
        assert client.daemon.stop() == 0
    assert checkpoints(tmp_path) == 1


def test_a_reader_whose_polls_are_too_rare_is_not_ready(tmp_path: Path) -> None:
    rare = ("--set", "ready.max_lag=1ms", "--set", "follow_latest=true", "--set", "manifest_poll_interval=1h")
    with writer(tmp_path), reader(tmp_path, *rare) as client:
        deadline = time.monotonic() + WAIT_S
        while client.daemon.get("/readyz", port=client.admin_port)[0] != 503:
            assert time.monotonic() < deadline
        assert "old" in client.daemon.get("/readyz", port=client.admin_port)[1]
        assert client.get(b"a")[0] == 404


@pytest.mark.slow
def test_a_reader_that_follows_without_a_checkpoint_writes_nothing(tmp_path: Path) -> None:
    with writer(tmp_path) as source:
        source.put(b"a", b"1")
        assert source.daemon.stop() == 0
    before = sorted(tmp_path.joinpath("store").rglob("*"))
    with reader(tmp_path, "--set", "follow_latest=true") as client:
        assert client.get(b"a")[1] == b"1"
        assert client.daemon.stop() == 0
    assert sorted(tmp_path.joinpath("store").rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        pytest.param("checkpoint_lifetime=100ms", 78, "checkpoint_lifetime", id="a lease shorter than two polls"),
        pytest.param("merge_operator=nosuch", 78, "nosuch", id="an operator that is none"),
        pytest.param("manifest_pol_interval=1s", 78, "manifest_poll_interval", id="misspelt"),
        pytest.param("store.start_timeout=100ms", 69, "orders", id="no database"),
    ],
)
def test_invalid_settings_stop_the_start_of_a_reader(tmp_path: Path, setting: str, code: int, words: str) -> None:
    (tmp_path / "store").mkdir()
    args = ("--url", f"file://{tmp_path}/store/orders", "--port", "0", "--set", setting)
    with running("shale_reader", *args, log=tmp_path / "log") as daemon:
        assert daemon.process.wait(ENDED_S) == code
        assert words in daemon.log.read_text()


@pytest.mark.slow
def test_a_lost_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    with writer(tmp_path) as source:
        assert source.daemon.stop() == 0
    args = ("--url", f"file://{tmp_path}/store/orders", "--port", "0")
    missing = ("--set", "checkpoint=01234567-89ab-4def-8123-456789abcdef")
    with running("shale_reader", *args, *missing, log=tmp_path / "r") as daemon:
        assert _code(daemon) == 69
        assert "01234567-89ab-4def-8123-456789abcdef" in daemon.log.read_text()


def _code(daemon: Daemon) -> int:
    return daemon.process.wait(ENDED_S)


def test_a_snapshot_of_a_reader_outlives_what_the_reader_moves_on_to(tmp_path: Path) -> None:
    with writer(tmp_path) as source, reader(tmp_path) as client:
        source.put(b"a", b"old")
        assert until_found(client, b"a") == b"old"
        snapshot = json.loads(client.call("POST", "/v1/snapshots")[1])["id"]
        source.put(b"a", b"new")
        source.put(b"b", b"new")
        assert until_found(client, b"b") == b"new"
        assert client.call("GET", f"{kv(b'a')}?snapshot={snapshot}")[1] == b"old"
        problem(client.call("GET", f"{kv(b'b')}?snapshot={snapshot}"), 404)
        body = client.call("POST", f"/v1/scan?snapshot={snapshot}", b"{}", Content_Type="application/json")[1]
        assert json.loads(body.splitlines()[-1]) == {"end": True, "rows": 1, "resume": None}
        assert client.call("DELETE", f"/v1/snapshots/{snapshot}")[0] == 204
        problem(client.call("GET", f"{kv(b'a')}?snapshot={snapshot}"), 410)


def test_a_reader_without_a_checkpoint_keeps_no_snapshots(tmp_path: Path) -> None:
    with writer(tmp_path), reader(tmp_path, "--set", "follow_latest=true") as client:
        problem(client.call("POST", "/v1/snapshots"), 404)
        assert "/v1/snapshots" not in json.loads(client.call("GET", "/openapi.json")[1])["paths"]
        assert client.scan()[-1]["end"] is True


@pytest.mark.slow
def test_clients_of_redis_read_from_a_reader_and_cannot_write(tmp_path: Path) -> None:
    resp = ("--set", "resp.enabled=true", "--set", "resp.port=0")
    token = {"SHALE_RESP__BEARER_TOKEN": "s3cret"}
    with writer(tmp_path) as source, reader(tmp_path, *resp, env=token) as client:
        source.put(b"a", b"1")
        assert until_found(client, b"a") == b"1"
        port = client.daemon.port("resp_port")
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("a")
        for protocol in (2, 3):
            with redis.Redis(port=port, protocol=protocol, password="s3cret") as one:
                assert one.get("a") == b"1"
                assert list(one.scan_iter()) == [b"a"]
                assert one.info("replication")["role"] == "slave"
                with pytest.raises(redis.ReadOnlyError):
                    one.set("a", "2")
                with one.pipeline() as pipe:
                    assert pipe.get("a").exists("a", "b").execute() == [b"1", 1]
                with one.pipeline() as pipe, pytest.raises((redis.ReadOnlyError, redis.exceptions.ExecAbortError)):
                    pipe.get("a").delete("a").execute()
        assert client.daemon.stop() == 0
