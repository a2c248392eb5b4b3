"""SIGKILL of the active writer, again and again: the standby takes over, and no acknowledged row is lost."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.standby.standby_process import Member, member, wait_for

ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
ROWS = 20


@pytest.mark.soak
def test_no_acknowledged_row_is_lost_in_many_takeovers(tmp_path: Path) -> None:
    acknowledged: dict[bytes, bytes] = {}
    with ExitStack() as stack:
        active = stack.enter_context(member(tmp_path, "member-0"))
        wait_for(active.is_active, "the first writer is not active")
        for number in range(1, ROUNDS + 1):
            standby = stack.enter_context(member(tmp_path, f"member-{number}"))
            standby.daemon.wait_for("standby.waiting")
            for row in range(ROWS):
                key, value = b"key-%d" % (row % 7), b"%d/%d" % (number, row)
                assert active.put(key, value) == 204
                acknowledged[key] = value
            active.daemon.process.kill()
            active.daemon.process.wait()
            assert standby.wait_until_active()["epoch"] == number + 1
            wait_for(standby.is_active, "the standby does not serve")
            active = standby
            assert_all(active, acknowledged)


def assert_all(active: Member, acknowledged: dict[bytes, bytes]) -> None:
    assert {key: active.get(key) for key in acknowledged} == {key: (200, value) for key, value in acknowledged.items()}
