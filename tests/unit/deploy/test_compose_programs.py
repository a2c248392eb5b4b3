"""The programs that containers of the local stack run beside Shale."""

import base64
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.compose import load
from deploy.compose.alert_receiver import line_of
from tests.paths import REPOSITORY

ALERT = {
    "status": "firing",
    "labels": {"alertname": "SlateDBWriterDown", "severity": "critical", "db": "orders"},
    "annotations": {"summary": "No writer.", "description": "No active writer\nfor orders.", "runbook_url": "docs/x"},
}
LINE = "firing critical SlateDBWriterDown db=orders No active writer for orders. docs/x"


@contextmanager
def receiver() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the receiver on a free port, as its container does."""
    command = [sys.executable, REPOSITORY / "deploy/compose/alert_receiver.py", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as child:
        assert child.stdout is not None
        port = child.stdout.readline().split()[-1]
        try:
            yield f"http://127.0.0.1:{port}", child
        finally:
            child.terminate()


def test_the_receiver_logs_a_line_for_each_alert() -> None:
    body = json.dumps({"version": "4", "alerts": [ALERT, {**ALERT, "status": "resolved"}]}).encode()
    with receiver() as (url, child):
        assert urllib.request.urlopen(url).status == 204
        for rejected in (b"", b"[]", b'{"alerts": [1]}', b"\xff"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(url, data=rejected)
        assert urllib.request.urlopen(url, data=body).status == 204
        child.terminate()
        assert child.stdout is not None
        assert child.stdout.read() == f"{LINE}\n{LINE.replace('firing', 'resolved')}\n"
        assert child.wait() == 0


def test_an_alert_without_anything_has_a_line() -> None:
    assert line_of({}) == "? - ? db=-"


def test_the_load_writes_different_orders_of_a_bounded_set() -> None:
    ops = load.batch(random.Random(7), 2_000)["ops"]
    keys = {base64.b64decode(op[1]) for op in ops}
    assert len(keys) == 2_000
    assert all(b"order/0000000" <= key < b"order/%07d" % load.ORDERS for key in keys)
    assert 10 < sum(op[0] == "delete" for op in ops) < 100
    assert json.loads(base64.b64decode(ops[0][2]))["state"] in load.STATES
