"""Real clients on a real daemon: redis-py in both protocols, redis-cli and redis-benchmark."""

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.daemons.daemon_process import metric
from tests.integration.writer.writer_process import Client, writer

RESP = ("--set", "resp.enabled=true", "--set", "resp.port=0")
NEEDS_TOOLS = pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-tools are not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with writer(tmp_path_factory.mktemp("resp"), *RESP) as one:
        yield one


def hasty(port: int, **options: Any) -> "redis.Redis":
    """Return a client without retries."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), **options)


def resp_port(client: Client) -> int:
    return client.daemon.port("resp_port")


@pytest.fixture(params=[2, 3])
def client(served: Client, request: pytest.FixtureRequest) -> Iterator["redis.Redis"]:
    with redis.Redis(port=resp_port(served), protocol=request.param) as one:
        yield one
        with one.pipeline(transaction=False) as pipe:
            for key in one.scan_iter(count=1000):
                pipe.delete(key)
            pipe.execute()


def test_values(client: "redis.Redis") -> None:
    assert client.ping()
    assert client.set("a", b"\x00\xff\r\n")
    assert client.get("a") == b"\x00\xff\r\n"
    assert client.set("a", "2", nx=True) is None
    assert client.set("a", "2", xx=True, get=True) == b"\x00\xff\r\n"
    assert client.set("b", "3", px=60_000)
    assert client.mset({"c": 1, "d": 2})
    assert client.mget("a", "b", "c", "nope") == [b"2", b"3", b"1", None]
    assert client.exists("a", "b", "nope") == 2
    assert client.delete("a", "nope") == 1
    assert client.waitaof(1, 0, 10_000) == [1, 0]
    large = b"x" * (8 << 20)
    client.set("large", large)
    assert client.get("large") == large


def test_pipelines_and_transactions(client: "redis.Redis") -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(5_000):
            pipe.set(f"p{number}", number)
        assert pipe.execute() == [True] * 5_000
    with client.pipeline() as pipe:
        pipe.get("p1").set("p1", "x").get("p1").delete("p2", "p2").exists("p2")
        assert pipe.execute() == [b"1", True, b"x", 1, 0]
    with client.pipeline() as pipe:
        pipe.set("p1", "y").execute_command("NOPE")
        with pytest.raises(redis.ResponseError, match="unknown command"):
            pipe.execute()
    assert client.get("p1") == b"x"


def run_in_threads(work: Callable[[], None]) -> None:
    """Run it four times at once."""
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_counting_by_many_with_watch(client: "redis.Redis", served: Client) -> None:
    client.set("n", 0)

    def add_one(pipe: "redis.client.Pipeline") -> None:
        number = int(pipe.get("n"))
        pipe.multi()
        pipe.set("n", number + 1)

    def count() -> None:
        with redis.Redis(port=resp_port(served)) as one:
            for _ in range(25):
                one.transaction(add_one, "n")

    run_in_threads(count)
    assert client.get("n") == b"100"


def test_scanning(client: "redis.Redis") -> None:
    client.mset({f"user:{number:04}": number for number in range(500)} | {"other": 1})
    assert len(set(client.scan_iter())) == 501
    keys = list(client.scan_iter(match="user:00*", count=7))
    assert keys == [b"user:%04d" % number for number in range(100)]
    assert list(client.scan_iter(match="user:*", _type="hash")) == []
    token, flat = client.execute_command("SHALE.SCAN", "PREFIX", "user:", "LIMIT", 2, "REVERSE")
    assert flat == [b"user:0499", b"499", b"user:0498", b"498"]
    assert token is not None


def lock_released(client: "redis.Redis", name: str, token: str) -> bool:
    """Release an unexpired lock without a script."""
    with client.pipeline() as pipe:
        pipe.watch(name)
        if pipe.get(name) != token.encode():
            return False
        pipe.multi()
        pipe.delete(name)
        return pipe.execute() == [1]


def test_locks(client: "redis.Redis") -> None:
    assert client.set("lock", "me", nx=True, px=60_000)
    assert not client.set("lock", "you", nx=True, px=60_000)
    assert not lock_released(client, "lock", "you")
    assert lock_released(client, "lock", "me")
    assert client.set("lock", "you", nx=True, px=60_000)


def test_locks_of_the_client(client: "redis.Redis", served: Client) -> None:
    with redis.Redis(port=resp_port(served)) as second:
        mine, yours = client.lock("lock", timeout=60), second.lock("lock", timeout=60, blocking=False)
        assert mine.acquire()
        assert not yours.acquire()
        assert mine.extend(60)
        assert 60_000 < client.pttl("lock") <= 120_000
        assert mine.extend(30, replace_ttl=True)
        assert mine.reacquire()
        assert 30_000 < client.pttl("lock") <= 60_000
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            yours.do_release(b"not mine")
        assert client.get("lock") == mine.local.token
        mine.release()
        assert yours.acquire()
        with client.lock("other", timeout=60), second.lock("third", timeout=60):
            assert client.exists("other", "third") == 2
        assert client.exists("other", "third") == 0
        client.delete("lock")
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            yours.release()


def test_only_one_client_is_inside_a_lock(client: "redis.Redis", served: Client) -> None:
    client.set("balance", 0)

    def work() -> None:
        with redis.Redis(port=resp_port(served)) as one:
            for _ in range(10):
                with one.lock("balance:lock", timeout=60, sleep=0.001):
                    one.set("balance", int(one.get("balance")) + 1)

    run_in_threads(work)
    assert client.get("balance") == b"40"
    assert client.exists("balance:lock") == 0


def test_counters_expiry_and_parts(client: "redis.Redis") -> None:
    assert client.incr("n") == 1
    assert client.incrby("n", 9) == 10
    assert client.incrbyfloat("n", 0.5) == 10.5
    assert client.decr("m", 2) == -2
    assert client.execute_command("SETEX", "a", 60, "abc")
    assert 0 < client.ttl("a") <= 60
    assert client.expire("a", 30, gt=True) == 0
    assert client.pexpireat("a", client.pexpiretime("a") + 1000) == 1
    assert client.persist("a") == 1
    assert client.ttl("a") == -1
    assert client.append("a", "def") == 6
    assert client.setrange("a", 1, "X") == 6
    assert client.getrange("a", 0, 2) == b"aXc"
    assert client.strlen("a") == 6
    assert client.getex("a", px=60_000) == b"aXcdef"
    assert client.execute_command("GETSET", "a", "new") == b"aXcdef"
    assert client.getdel("a") == b"new"
    assert client.execute_command("SETNX", "a", "1")
    assert client.msetnx({"a": 1, "z": 2}) is False
    assert client.type("a") == b"string"
    assert client.copy("a", "b") is True
    assert client.rename("b", "c")
    assert client.touch("a", "c") == client.unlink("a", "c") == 2
    assert client.dbsize() == 2
    assert client.randomkey() in client.keys("*") == [b"m", b"n"]
    assert client.config_get("maxmemory") == {"maxmemory": "0"}
    with pytest.raises(redis.ResponseError, match=r"resp\.allow_flush"):
        client.flushall()


def test_what_is_not_there_says_so(client: "redis.Redis") -> None:
    with pytest.raises(redis.ResponseError, match="unknown command 'LPUSH'"):
        client.lpush("a", 1)
    with client.pubsub() as channels:
        channels.subscribe("a")
        with pytest.raises(redis.ResponseError, match="unknown command 'SUBSCRIBE'"):
            channels.get_message(timeout=10)
    with pytest.raises(redis.ResponseError, match="out of range"):
        client.execute_command("SELECT", 1)


def test_info_and_client_commands_describe_the_server(client: "redis.Redis") -> None:
    assert client.info("server")["server_name"] == "shale"
    assert client.client_list()[0]["id"] == str(client.client_id()) or client.connection_pool.max_connections > 1
    assert "get" in client.command()
    client.client_setname("me")


def test_both_interfaces_show_the_same(client: "redis.Redis", served: Client) -> None:
    client.set("shared", "by redis")
    assert served.get(b"shared")[1] == b"by redis"
    assert served.put(b"shared", b"by http")[0] == 204
    assert client.get("shared") == b"by http"


@NEEDS_TOOLS
def test_redis_cli(served: Client) -> None:
    def cli(*words: str, text: str | None = None) -> str:
        command = ["redis-cli", "-p", str(resp_port(served)), *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout

    assert cli("SET", "cli", "a b") == "OK\n"
    assert cli("-3", "GET", "cli") == "a b\n"
    assert cli(text='MULTI\nSET cli "x y"\nGET cli\nEXEC\n') == "OK\nQUEUED\nQUEUED\nOK\nx y\n"
    assert "unknown command" in cli("LPUSH", "a", "1")
    assert "server\nshale" in cli("HELLO", "2") or "server shale" in cli("HELLO", "2")
    assert cli("--scan", "--pattern", "cl*") == "cli\n"


@NEEDS_TOOLS
def test_redis_benchmark(served: Client) -> None:
    command = ["redis-benchmark", "-p", str(resp_port(served)), "-t", "ping,set,get,mset", "-n", "5000", "-P", "16"]
    output = subprocess.run([*command, "-q"], capture_output=True, text=True, check=True, timeout=120).stdout
    done = re.findall(r"^\s*([A-Z_]+).*: [0-9.]+ requests per second", output.replace("\r", "\n"), re.MULTILINE)
    assert {"PING_INLINE", "PING_MBULK", "SET", "GET", "MSET"} <= set(done), output
    assert metric(served.metrics(), "shale_resp_protocol_errors_total") == 0


def test_a_password(tmp_path: Path) -> None:
    with writer(tmp_path, *RESP, env={"SHALE_HTTP__BEARER_TOKEN": "secret"}) as one:
        port = resp_port(one)
        for protocol in (2, 3):
            with redis.Redis(port=port, protocol=protocol, password="secret") as client:
                assert client.set("a", "1")
            with hasty(port, protocol=protocol) as client, pytest.raises(redis.AuthenticationError):
                client.get("a")
            wrong = hasty(port, protocol=protocol, password="wrong")
            with wrong as client, pytest.raises(redis.AuthenticationError):
                client.get("a")


def set_durably(client: "redis.Redis", key: str, value: int) -> None:
    client.set(key, value)
    client.waitaof(1, 0, 0)


def test_what_was_waited_for_survives_a_kill_and_the_new_writer_is_found(tmp_path: Path) -> None:
    with writer(tmp_path, *RESP, log="one") as one, hasty(resp_port(one)) as client:
        with client.pipeline() as pipe:
            pipe.set("a", 1).set("b", 2)
            pipe.execute()
        assert client.waitaof(1, 0, 0) == [1, 0]
        one.daemon.process.kill()
        one.daemon.process.wait()
    with writer(tmp_path, *RESP, log="two") as two, hasty(resp_port(two)) as client:
        assert client.mget("a", "b") == [b"1", b"2"]
        with writer(tmp_path, *RESP, "--set", "resp.durability=durable", log="three") as three:
            with redis.Redis(port=resp_port(three)) as newer:
                assert newer.set("a", 3)
            with pytest.raises((redis.ReadOnlyError, redis.ConnectionError)):
                set_durably(client, "a", 4)
            with redis.Redis(port=resp_port(three)) as newer:
                assert newer.get("a") == b"3"


def test_a_stop_makes_what_was_written_durable(tmp_path: Path) -> None:
    late = ("--set", "flush_interval=1h")
    with writer(tmp_path, *RESP, *late, log="one") as one, hasty(resp_port(one)) as client:
        client.set("a", 1)
        assert one.daemon.stop() == 0
        with pytest.raises(redis.ConnectionError):
            client.get("a")
    with writer(tmp_path, *RESP, log="two") as two, hasty(resp_port(two)) as client:
        assert client.get("a") == b"1"
