"""A standby replaces a writer that stops, dies or freezes, or on command; rows survive, the old one is fenced."""

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, REQUEST_S, metric
from tests.integration.standby.standby_process import Member, member, pair, wait_for


def assert_took_over(second: Member, reason: str) -> None:
    promoted = second.wait_until_active()
    assert (promoted["reason"], promoted["epoch"], promoted["epoch_before"]) == (reason, 2, 1)
    second.daemon.wait_for("daemon.ready")
    assert second.readyz() == (200, "ok\n")
    assert second.get(b"a") == (200, b"before")
    assert second.put(b"a", b"after") == 204
    text = second.metrics()
    assert 'shale_role{role="active"} 1.0' in text
    assert 'shale_role{role="standby"} 0.0' in text
    assert f'shale_standby_takeovers_total{{db="orders",reason="{reason}"}} 1.0' in text


def cached_bytes(each: Member) -> float:
    return metric(each.metrics(), "shale_standby_wal_cache_bytes")


@pytest.mark.slow
def test_a_standby_refuses_requests_and_tells_who_is_active(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        assert second.readyz() == (503, "standby\n")
        assert second.daemon.get("/livez", port=second.admin_port) == (200, "ok\n")
        assert second.daemon.get("/startupz", port=second.admin_port)[0] == 200
        status = json.loads(second.daemon.get("/statusz", port=second.admin_port)[1])
        assert (status["state"], status["active_epoch"]) == ("standby", 1)
        code, body, headers = second.daemon.request("GET", "/v1/kv/a", port=second.port)
        refused = json.loads(body)
        assert (code, headers["content-type"]) == (503, "application/problem+json")
        assert (refused["state"], refused["active"]) == ("standby", f"http://127.0.0.1:{first.port}")
        assert 'shale_role{role="standby"} 1.0' in second.metrics()
        assert second.daemon.stop() == 0
        assert first.put(b"a", b"still active") == 204


def test_a_standby_refuses_redis_clients_and_tells_who_is_active(tmp_path: Path) -> None:
    with pair(tmp_path, "--set", "resp.enabled=true", "--set", "resp.port=0") as (first, second):
        port = int(second.daemon.wait_for("standby.started")["resp_port"])
        with socket.create_connection(("127.0.0.1", port), timeout=REQUEST_S) as client:
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            with client.makefile("rb") as answer:
                said = answer.read()
        assert said.startswith(b"-TRYAGAIN this process is a standby: the active writer is"), said
        assert said.endswith(f"http://127.0.0.1:{first.port} (epoch 1)\r\n".encode()), said
        assert [line for line in second.daemon.lines() if line["level"] == "error"] == []


@pytest.mark.slow
def test_after_a_clean_stop(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        assert first.put(b"a", b"before") == 204
        assert first.daemon.stop() == 0
        assert_took_over(second, "closed")
        assert metric(second.metrics(), "shale_standby_challenges_total") == 0
        assert second.daemon.stop() == 0


@pytest.mark.slow
def test_after_a_kill_the_rows_of_the_wal_come_from_memory(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        assert first.put(b"a", b"before") == 204
        wait_for(lambda: cached_bytes(second) >= len(b"abefore"), "the standby does not follow the WAL")
        assert metric(second.metrics(), 'shale_memory_bytes{part="wal_rows"}') == cached_bytes(second)
        first.daemon.process.kill()
        assert_took_over(second, "silent")
        # The fence of the first writer, and the file with the row.
        assert second.wait_until_active()["wal_files_cached"] == 2
        assert cached_bytes(second) == 0


@pytest.mark.slow
def test_without_a_cache_the_rows_come_from_the_store(tmp_path: Path) -> None:
    with pair(tmp_path, "--set", "standby.wal_cache_bytes=0") as (first, second):
        assert first.put(b"a", b"before") == 204
        code, _ = second.promote()
        assert code == 200
        assert_took_over(second, "promoted")
        assert second.wait_until_active()["wal_files_cached"] == 0


@pytest.mark.slow
def test_a_frozen_writer_that_wakes_is_fenced(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        assert first.put(b"a", b"before") == 204
        first.daemon.process.send_signal(signal.SIGSTOP)
        try:
            assert_took_over(second, "silent")
        finally:
            first.daemon.process.send_signal(signal.SIGCONT)
        assert first.daemon.process.wait(ENDED_S) == 80
        assert second.get(b"a") == (200, b"after")


@pytest.mark.slow
def test_a_promotion_fences_the_active_writer(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second):
        assert first.put(b"a", b"before") == 204
        code, answer = second.promote()
        assert (code, answer["state"], answer["epoch"], answer["promoted"]) == (200, "active", 2, True)
        assert_took_over(second, "promoted")
        assert first.daemon.process.wait(ENDED_S) == 80
        assert second.promote() == (200, {**answer, "promoted": False})


@pytest.mark.slow
def test_of_two_standbys_one_takes_over_and_the_other_waits_on(tmp_path: Path) -> None:
    with pair(tmp_path) as (first, second), member(tmp_path, "third") as third:
        third.daemon.wait_for("standby.waiting")
        assert first.put(b"a", b"before") == 204
        first.daemon.process.kill()
        wait_for(lambda: second.is_active() or third.is_active(), "neither took over")
        winner, loser = (second, third) if second.is_active() else (third, second)
        assert_took_over(winner, "silent")
        wait_for(lambda: seen_epochs(loser) == [1, 2], "the loser does not know the winner")
        assert loser.readyz() == (503, "standby\n")
        assert winner.daemon.stop() == 0
        assert loser.wait_until_active()["epoch"] == 3


def seen_epochs(each: Member) -> list[int]:
    return [line["epoch"] for line in each.daemon.lines("standby.waiting")]
