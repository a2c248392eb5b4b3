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
from pathlib import Path

import pytest

from deploy.compose import load, make_tokens
from deploy.compose.alert_receiver import line_of
from shale.core.token_hash import token_hash
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


def test_tokens_are_made_once_and_daemons_get_their_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, hashes = tmp_path / "tokens", tmp_path / "hashes"
    tokens.mkdir()
    hashes.mkdir()
    for variable in make_tokens.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    make_tokens.make(tokens, hashes)
    first = {file.name: file.read_text() for file in tokens.iterdir()}
    assert first.keys() == {"write", "admin"}
    assert first["write"] != first["admin"]
    for role, token in first.items():
        assert len(bytes.fromhex(token)) >= 16
        assert (hashes / f"tokens__{role}").read_text() == token_hash(token)
    monkeypatch.setenv("SHALE_TOKEN", "mine")
    make_tokens.make(tokens, hashes)
    assert (tokens / "admin").read_text() == first["admin"]
    assert (tokens / "write").read_text() == "mine"
    assert (hashes / "tokens__write").read_text() == token_hash("mine")
    assert {file.name for file in hashes.iterdir()} == {"tokens__write", "tokens__admin"}
