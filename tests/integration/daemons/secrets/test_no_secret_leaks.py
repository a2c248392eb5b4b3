"""No secret of the settings is in anything that the processes write, answer or show in the list of processes."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.secrets.planted_secrets import START_S, assert_clean, environment, run

S3 = "s3://bucket/db"


@pytest.mark.parametrize("role", ["writer", "compactor", "worker", "gc", "reader"])
def test_printed_settings_hold_none(tmp_path: Path, role: str) -> None:
    text = run(tmp_path, "config", "show", role, "--origin", "-o", "json", "-u", S3)
    assert_clean(text, role)
    assert "http://***@127.0.0.1:1" in text


TRANSACTIONAL = [
    "postgresql://user:planted-pg@127.0.0.1:1/db",
    "postgresql://user:planted-pg@[no/db",
    "mysql://user:planted-my@127.0.0.1:1/db",
    "other://user:planted-other@127.0.0.1:1/db",
    "user:planted-nothing@127.0.0.1",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        *(
            pytest.param(
                ("db", "info", "-u", "file:///nowhere/db"),
                {"SHALE_STORE__CAS": "two-phase", "SHALE_STORE__TRANSACTIONAL_URL": url},
                id=url.partition(":")[0],
            )
            for url in TRANSACTIONAL
        ),
        pytest.param(("db", "info", "-u", S3), {"SHALE_STORE__ENDPOINT": "user:planted-a@127.0.0.1:1"}, id="no scheme"),
        pytest.param(("db", "info", "-u", S3), {"SHALE_STORE__ENDPOINT": "ftp://user:planted-b@host"}, id="no HTTP"),
        pytest.param(("--timeout", "2s", "db", "info", "-u", S3), {}, id="unreachable"),
        pytest.param(("config", "check", "writer", "-u", S3), {"SHALE_TOKENS__READ": "planted-x\u00e9"}, id="token"),
        pytest.param(("config", "check", "gc", "-u", S3), {"SHALE_TOKENS__REED": "planted-y"}, id="name"),
    ],
)
def test_errors_hold_none(tmp_path: Path, arguments: tuple[str, ...], more: dict[str, str]) -> None:
    text = run(tmp_path, *arguments, **more)
    assert text
    assert_clean(text, str(arguments))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """Run ``shale up``; yield the admin address and the pid of each daemon."""
    command = [sys.executable, "-m", "shale_cli", "-u", f"file://{tmp_path}/store/db", "up", "-o", "json"]
    arguments = [*command, "--port", "0", "--admin-port", "0"]
    read_end, write_end = os.pipe()
    with (tmp_path / "log").open("wb") as log, os.fdopen(read_end) as printed:
        process = subprocess.Popen(arguments, stdout=write_end, stderr=log, env=environment(tmp_path))
        os.close(write_end)
        try:
            found = json.loads(os.read(read_end, 1 << 20))["processes"]
            yield {each["process"]: (each["admin"], each["pid"]) for each in found}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_S)
            printed.read()


def answer(url: str, token: str | None, method: str = "GET") -> str:
    headers = {"Accept": "*/*"} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method)) as found:
            return f"{found.headers}{found.read1(1 << 16).decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers}{error.read().decode()}"


@pytest.mark.slow
def test_running_daemons_show_none(tmp_path: Path, stack: dict[str, tuple[str, int]]) -> None:
    for name, (admin, pid) in stack.items():
        assert_clean(Path(f"/proc/{pid}/cmdline").read_text(), f"command line of {name}")
        for path in ("statusz", "metrics", "livez?verbose", "readyz?verbose", "openapi.json", "", "console/events"):
            for token in (None, "planted-read-1", "planted-unknown"):
                assert_clean(answer(f"{admin}/{path}", token), f"{name}: /{path}")
        for token in ("planted-admin", "planted-read-1", "planted-unknown"):
            assert_clean(answer(f"{admin}/v1/admin/log-level", token, "PUT"), name)
    bundle = tmp_path / "bundle.tar.gz"
    daemons = [text for admin, _ in stack.values() for text in ("--daemon", admin)]
    where = ("-f", str(bundle), "--log", str(tmp_path / "log"), *daemons, "-u", f"file://{tmp_path}/store/db")
    assert_clean(run(tmp_path, "debug", "bundle", *where), "debug bundle")
    with tarfile.open(bundle) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            assert_clean(member.name + file.read().decode(), member.name)
    for _, pid in stack.values():
        os.kill(pid, signal.SIGABRT)
    assert_clean((tmp_path / "log").read_text(), "log")
