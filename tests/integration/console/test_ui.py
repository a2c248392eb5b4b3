"""``shale ui``: the console without a daemon."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import shale.sync
from tests.paths import PYTHONPATH


def test_it_shows_a_database_to_the_token_alone_and_writes_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    with shale.sync.Db.open(url) as db:
        db.put(b"a", b"1")
        db.flush("memtable")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    command = [sys.executable, "-m", "shale_cli", "ui", "-u", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": PYTHONPATH}) as process:
        assert process.stdout is not None
        place, _, token = process.stdout.readline().strip().partition("/#token=")
        try:
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{place}/console/events")
            refused.value.close()
            assert refused.value.code == 401
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(f"{place}/console/events", headers=headers)) as stream:
                state = json.loads(stream.readline().removeprefix(b"data: "))
            assert state["database"]["ssts"] == 1
            body = json.dumps({"key": "a"}).encode()
            with urllib.request.urlopen(urllib.request.Request(f"{place}/console/lookup", body, headers)) as answer:
                assert json.load(answer)["value_b64"] == "MQ=="
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
