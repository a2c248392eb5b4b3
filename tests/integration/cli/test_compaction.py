"""Requests of administrators to a running compactor: the real command, the real admin port, and Python."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shale as library
from shale.compaction.requests import Sources
from shale.engine.options import FlushType
from shale.errors import InvalidCompaction
from shale.types import Ulid
from tests.integration.cli.commands import ENVIRONMENT, answer, refusal, shale
from tests.integration.daemons.daemon_process import Daemon, running

TOKEN = {"Authorization": "Bearer t0ken"}
PATH = "/v1/admin/compactions"
QUIET = (
    "--set", "compactor_options.poll_interval=10m",
    "--set", "compactor_options.commit_compacted_interval=100ms",
    "--set", "compactor_options.worker.compactions_poll_interval=200ms",
    "--set", "compactor_options.scheduler_options.min_compaction_sources=50",
    "--set", "compactor_options.scheduler_options.max_compaction_sources=50",
)  # fmt: skip
"""A coordinator that proposes nothing and is slow to look by itself."""


async def _write(url: str) -> None:
    async with library.Db.open(url) as db:
        for number in range(4):
            await db.put(b"key%d" % number, b"value")
            await db.flush(FlushType.MEMTABLE)


@pytest.fixture
def url(tmp_path: Path) -> str:
    asyncio.run(_write(f"file://{tmp_path}/db"))
    return f"file://{tmp_path}/db"


@pytest.fixture
def compactor(url: str, tmp_path: Path) -> Iterator[Daemon]:
    environment = {"SHALE_COMPACTOR__ADMIN__BEARER_TOKEN": "t0ken"}
    with running("shale_compactor", "--url", url, *QUIET, log=tmp_path / "log", env=environment) as daemon:
        daemon.wait_for("daemon.ready")
        yield daemon


def l0_ids(url: str) -> list[str]:
    return [view["id"] for view in answer("manifest", "show", "-u", url)["manifest"]["tree"]["l0"]]


def call(daemon: Daemon, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    headers = {**TOKEN, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    status, text, _ = daemon.request(method, path, port=daemon.port("admin_port"), body=data, headers=headers)
    return status, json.loads(text)


def test_by_http_by_command_and_from_python(url: str, compactor: Daemon) -> None:
    views = l0_ids(url)
    newest = views[0]

    # What would lose the rows of older L0s (V7) is refused on all three ways, and so is an overlap (V12).
    gap = {"Spec": {"Tiered": {"sources": [{"SstView": newest}], "destination": 5}}}
    status, problem = call(compactor, "POST", PATH, gap)
    assert (status, problem["rule"]) == (422, "V7")
    code, line = refusal("compaction", "submit", "--sources", newest, "-u", url)
    assert (code, line.startswith("shale: V7: ")) == (2, True)
    assert asyncio.run(_refused(url, newest)) == "V7"
    assert call(compactor, "GET", PATH)[1]["compactions"] == []

    # The coordinator looks by itself every ten minutes, and at once when it is asked on its own port.
    all_l0 = {"Spec": {"sources": [{"SstView": view} for view in views], "destination": 0}}
    status, told = call(compactor, "POST", PATH, all_l0)
    assert status == 202
    (job,) = told["compactions"]
    result = shale("compaction", "wait", job["id"], "-u", url, "--timeout", "100s")
    assert result.returncode == 0, result.stderr
    (done,) = json.loads(result.stdout)["compactions"]
    assert (done["phase"], done["attempts"], done["progress"]["total_input_ssts"]) == ("completed", 1, 4)
    assert result.stderr.decode().splitlines()[-1].startswith(f"{job['id']} completed  100.0 %")

    status, seen = call(compactor, "GET", f"{PATH}/{job['id']}")
    assert (status, seen) == (200, answer("compaction", "status", job["id"], "-u", url))
    assert compactor.get(PATH, port=compactor.port("admin_port"))[0] == 401

    # One that waits for the next look, and is cancelled before that.
    (waiting,) = answer("compaction", "submit", "--full", "-u", url)["compactions"]
    assert waiting["spec"] == "[SR0] -> SR0"
    assert call(compactor, "POST", PATH, "Full")[1]["rule"] == "V12"
    status, cancelled = call(compactor, "POST", f"{PATH}/{waiting['id']}/cancel")
    assert (status, cancelled["error_message"]) == (200, "cancelled")
    code, lines = _last_line("compaction", "wait", waiting["id"], "-u", url)
    assert (code, lines) == (4, f"shale: compaction {waiting['id']}: cancelled")
    assert compactor.stop() == 0
    assert compactor.lines("compaction.rejected") == []


def test_ctrl_c_ends_waiting_and_nothing_else(url: str, tmp_path: Path) -> None:
    with running("shale_compactor", "--url", url, *QUIET, "--no-embedded-worker", log=tmp_path / "log") as daemon:
        daemon.wait_for("daemon.ready")
    views = ",".join(l0_ids(url))
    (job,) = answer("compaction", "submit", "--sources", views, "-u", url)["compactions"]
    command = [sys.executable, "-m", "shale_cli", "compaction", "wait", job["id"], "-u", url]
    with subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what runs in its background without Ctrl-C, and so everything below.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - there are no threads here
    ) as waiting:
        try:
            assert waiting.stderr is not None
            assert waiting.stderr.readline().decode().startswith(f"{job['id']} submitted")
            waiting.send_signal(signal.SIGINT)
            out, err = waiting.communicate(timeout=60)
        finally:
            waiting.kill()
    assert (waiting.returncode, out, err) == (130, b"", b"shale: interrupted\n")
    assert answer("compaction", "status", job["id"], "-u", url)["phase"] == "submitted"


async def _refused(url: str, view: str) -> str:
    view_id = Ulid.parse(view)
    assert view_id is not None
    async with library.Admin(url) as admin:
        with pytest.raises(InvalidCompaction) as refused:
            await admin.submit_compaction(Sources(l0_view_ids=(view_id,)))
    return refused.value.rule


def _last_line(*arguments: str) -> tuple[int, str]:
    result = shale(*arguments)
    return result.returncode, result.stderr.decode().splitlines()[-1]
