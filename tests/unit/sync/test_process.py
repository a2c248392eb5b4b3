"""The background loop when processes end or fork: programs of their own, run to their end."""

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import logging, os, sys, threading
logging.getLogger("asyncio").setLevel(logging.ERROR)  # a busy machine makes it tell of slow callbacks
from shale import sync
url = sys.argv[1]
"""


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", PRELUDE + program, folder.as_uri() + "/db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )


def values(folder: Path) -> dict[bytes, bytes]:
    from shale import sync

    with sync.DbReader.open(folder.as_uri() + "/db") as reader:
        return {row.key: row.value for row in reader.scan()}


def test_a_program_may_end_with_open_handles_and_loses_nothing(tmp_path: Path) -> None:
    ended = run(
        """
db = sync.Db.open(url, flush_interval="1h")
db.put(b"k", b"v")
scan = db.scan()
next(scan)
snapshot = db.snapshot()
reader = sync.DbReader.open(url)
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(tmp_path) == {b"k": b"v"}


def test_threads_that_outlive_the_main_one_go_on(tmp_path: Path) -> None:
    ended = run(
        """
db = sync.Db.open(url)
def work():
    threading.main_thread().join()
    for number in range(100):
        db.put(b"%d" % number, b"v")
    db.close()
db.put(b"first", b"v")
thread = threading.Thread(target=work)
def begin():
    db.get(b"first")
    work()
thread = threading.Thread(target=begin)
thread.start()
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(values(tmp_path)) == 101


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "sys.exit(3)"])
def test_the_exit_code_stays(tmp_path: Path, ending: str) -> None:
    assert run(f"db = sync.Db.open(url); {ending}", tmp_path).returncode == 3


def test_a_fork_has_a_loop_of_its_own_and_says_whose_handles_it_has(tmp_path: Path) -> None:
    ended = run(
        """
from shale.errors import ClosedError
db = sync.Db.open(url)
db.put(b"k", b"v").durable()
pid = os.fork()
if pid == 0:
    try:
        db.get(b"k")
    except ClosedError as error:
        assert "forked" in str(error), error
    else:
        os._exit(1)
    with sync.DbReader.open(url) as reader:
        os._exit(0 if reader.get(b"k") == b"v" else 2)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert db.get(b"k") == b"v"
db.close()
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_pool_of_forked_processes_reads(tmp_path: Path) -> None:
    ended = run(
        """
import multiprocessing
db = sync.Db.open(url)
db.put(b"k", b"v").durable()
def read(_):
    return sync.DbReader.open(url).get(b"k")
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(read, range(4)) == [b"v"] * 4
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_code_of_the_user_s_that_exits_ends_its_call_only(tmp_path: Path) -> None:
    ended = run(
        """
import pyarrow
db = sync.Db.open(url)
def rows():
    yield pyarrow.record_batch({"key": [b"a"], "value": [b"1"]})
    sys.exit(7)
try:
    db.write_arrow(rows(), rows_per_commit=1)
except SystemExit as error:
    assert error.code == 7
else:
    raise AssertionError
db.put(b"k", b"v")
db.close()
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(tmp_path)[b"k"] == b"v"


def test_a_loop_that_was_ended_says_so_and_another_one_begins(tmp_path: Path) -> None:
    ended = run(
        """
from shale.errors import ClosedError
from shale.store.memory import MemoryStore
class Exiting(MemoryStore):
    async def put(self, key, data, **how):
        if self.exits and "/wal/" in key:
            raise SystemExit(3)
        return await super().put(key, data, **how)
store = Exiting()
store.exits = False
db = sync.Db.open("db", store=store)
store.exits = True
for call in (lambda: db.put(b"k", b"v").durable(), lambda: db.get(b"k")):
    try:
        call()
    except ClosedError as error:
        assert "was ended" in str(error), error
    else:
        raise AssertionError
with sync.Db.open(url) as other:
    other.put(b"k", b"v")
""",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(tmp_path) == {b"k": b"v"}
