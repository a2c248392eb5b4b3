"""A process may end right after its last request (docs/adr/0002-obstore-bridge.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.store.servers import s3_server
from tests.paths import REPOSITORY

RUNS = 8
"""An abort in four of ten runs would be missed once in sixty times."""

PROGRAM = """
import asyncio, sys
from shale.env import Env
from shale.store.connect import connect
from shale.store.options import StoreOptions

async def main(url, endpoint):
    config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
    store = connect(url, Env.system(), None, StoreOptions(config=config if endpoint else {}))
    await store.put("db/a", b"hello" * 100)
    assert bytes(await store.get_range("db/a", 0, 5)) == b"hello"
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def run(url: str, endpoint: str) -> subprocess.CompletedProcess[bytes]:
    shared = REPOSITORY / "shared"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url, endpoint],
        env={"PYTHONPATH": str(shared)},
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
def test_no_abort_after_the_last_request_to_s3() -> None:
    with s3_server("exits") as endpoint:
        results = [run("s3://exits", endpoint) for _ in range(RUNS)]
    assert [result.returncode for result in results] == [0] * RUNS, results[0].stderr.decode()


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_no_abort_after_the_last_request_elsewhere(scheme: str, tmp_path: Path) -> None:
    result = run(f"file://{tmp_path}" if scheme == "file" else "memory:///", "")
    assert (result.returncode, result.stderr) == (0, b"")


FORKS = """
import asyncio, os, sys
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.store.connect import connect
from shale.store.options import StoreOptions

config = {"endpoint": sys.argv[1], "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}

def store():
    return connect("s3://forks", Env.system(), None, StoreOptions(config=config))

def answers(one):
    return asyncio.run(one.head("db/none")) is None

early = store()
if sys.argv[2] == "used":
    assert answers(early)
pid = os.fork()
if pid == 0:
    for one in (early, store()):
        try:
            assert answers(one)
            print("answers", flush=True)
        except InvalidRequestError as error:
            print("forked" in str(error), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
assert answers(store())
"""


@pytest.mark.parametrize(("before", "in_child"), [("used", ["True", "True"]), ("unused", ["answers", "answers"])])
def test_a_fork_of_a_process_that_has_sent_requests_says_so_instead_of_waiting(
    before: str, in_child: list[str]
) -> None:
    with s3_server("forks") as endpoint:
        result = subprocess.run(
            [sys.executable, "-c", FORKS, endpoint, before],
            env={"PYTHONPATH": str(REPOSITORY / "shared")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (result.returncode, result.stdout.split()) == (0, in_child), result.stderr
