"""Scans of processes that were forked after the engine was imported: a program of its own."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import asyncio, os, sys
import shale

async def write(name):
    async with shale.Db.open(f"{sys.argv[1]}/{name}") as db:
        for number in range(500):
            await db.put(b"%s%06d" % (name.encode(), number), name.encode())

async def scan(name):
    wanted = [(b"%s%06d" % (name.encode(), number), name.encode()) for number in range(500)]
    async with shale.DbReader.open(f"{sys.argv[1]}/{name}") as reader:
        for _ in range(200):
            assert [(row.key, row.value) async for row in reader.scan()] == wanted, name

def fork(name):
    pid = os.fork()
    if pid:
        return pid
    try:
        asyncio.run(scan(name))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)

for name in "ab":
    asyncio.run(write(name))
asyncio.run(scan("a"))  # what a thread needs is made before the fork
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [fork("a"), fork("b")]])
"""


def test_forked_processes_scan_at_the_same_time(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert (ended.stdout, ended.stderr) == ("[0, 0]\n", "")
