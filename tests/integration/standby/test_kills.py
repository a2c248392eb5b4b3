"""SIGKILL of the active writer, again and again: the standby takes over, and no acknowledged row is lost."""

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.integration.daemons.daemon_process import metric
from tests.integration.standby.standby_process import Member, member, wait_for
from tests.integration.store.servers import s3_environment
from tests.integration.store.versitygw import needs_versitygw, versitygw

ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
ROWS = 20


@pytest.mark.soak
def test_no_acknowledged_row_is_lost_in_many_takeovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = survive(tmp_path)
    with capsys.disabled():
        report("a directory", seconds)


@pytest.mark.soak
@needs_versitygw
@pytest.mark.native_only("the server does not ignore conditions")
def test_on_versitygw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with versitygw("standby", tmp_path / "objects") as server:
        seconds = survive(tmp_path, url="s3://standby/orders", env=s3_environment(server))
    with capsys.disabled():
        report("versitygw", seconds)


def survive(folder: Path, *, url: str | None = None, env: dict[str, str] | None = None) -> list[float]:
    """Kill ``ROUNDS`` active writers; return the seconds from each kill to the first write of the next one."""
    acknowledged: dict[bytes, bytes] = {}
    seconds: list[float] = []
    start = partial(member, folder, url=url, env=env)
    with ExitStack() as stack:
        active = stack.enter_context(start("member-0"))
        wait_for(active.is_active, "the first writer is not active")
        for number in range(1, ROUNDS + 1):
            standby = stack.enter_context(start(f"member-{number}"))
            standby.daemon.wait_for("standby.waiting")
            for row in range(ROWS):
                key, value = b"key-%d" % (row % 7), b"%d/%d" % (number, row)
                assert active.put(key, value) == 204
                acknowledged[key] = value
            # With every other kill the standby has the rows in memory; otherwise it may have some of them.
            if number % 2:
                wait_for(partial(has_rows_in_memory, standby), "the standby does not follow the WAL")
            active.daemon.process.kill()
            killed_s = time.monotonic()
            active.daemon.process.wait()
            wait_for(partial(writes, standby, acknowledged, number), "the standby does not take over")
            seconds.append(time.monotonic() - killed_s)
            assert standby.wait_until_active()["epoch"] == number + 1
            active = standby
            assert_all(active, acknowledged)
    return seconds


def has_rows_in_memory(standby: Member) -> bool:
    return metric(standby.metrics(), "shale_standby_wal_cache_bytes") > 0


def writes(standby: Member, acknowledged: dict[bytes, bytes], number: int) -> bool:
    """Return whether the standby takes a write."""
    if standby.put(b"round", b"%d" % number) != 204:
        return False
    acknowledged[b"round"] = b"%d" % number
    return True


def report(store: str, seconds: list[float]) -> None:
    print(f"\n{store}: {len(seconds)} takeovers, {median(seconds):.1f} s median, {max(seconds):.1f} s maximum")


def assert_all(active: Member, acknowledged: dict[bytes, bytes]) -> None:
    assert {key: active.get(key) for key in acknowledged} == {key: (200, value) for key, value in acknowledged.items()}
