"""Without what only Linux has, every module can be imported and plain Python kernels work: as far as macOS can be
imitated on Linux, and no further."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, errno, fcntl, importlib, mmap, os, pkgutil, resource, signal, socket, sys, time
import anyio._backends._asyncio, httpx, multiprocessing.pool, numpy, obstore, prometheus_client, pydantic_settings
import rich.console, starlette.routing, structlog, typer, uvicorn

LINUX = {
    os: "O_TMPFILE O_PATH O_NOATIME O_LARGEFILE O_RSYNC RWF_ RENAME_ POSIX_FADV posix_fa memfd MFD_ sched_geta"
        " sched_seta copy_file_range splice SPLICE eventfd EFD_ pidfd getrandom GRND_ fdatasync pipe2 setns unshare"
        " getxattr setxattr listxattr removexattr timerfd TFD_ CLONE_ getresuid setresuid",
    fcntl: "F_OFD F_SETPIPE F_GETPIPE F_ADD_SEALS F_GET_SEALS F_SEAL F_SETSIG F_GETSIG F_NOTIFY F_SETLEASE F_GETLEASE",
    mmap: "MAP_POPULATE MAP_STACK MAP_DENYWRITE MADV_HUGE MADV_COLD MADV_DONTFORK MADV_NOHUGE MADV_REMOVE",
    resource: "prlimit RUSAGE_THREAD RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_RTTIME",
    signal: "pidfd SIGRTM SIGPOLL SIGPWR SIGSTKFLT sigtimedwait sigwaitinfo",
    socket: "TCP_KEEPIDLE TCP_USER_TIMEOUT TCP_QUICKACK TCP_CORK TCP_DEFER SO_PEERCRED SO_BINDTODEVICE SO_INCOMING_CPU"
        " AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    errno: "EREMOTEIO EUCLEAN ENOMEDIUM EMEDIUMTYPE EISNAM",
}
del os.O_DIRECT
removed = 0
for module, prefixes in LINUX.items():
    for name in dir(module):
        if name.startswith(tuple(prefixes.split())):
            delattr(module, name)
            removed += 1
assert removed > 50
sys.platform = "darwin"

def without_proc(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith(("/proc", "/sys/fs")):
        raise FileNotFoundError(arguments[0])

sys.addaudithook(without_proc)

def modules(package):
    yield package
    for each in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not each.name.endswith("__main__"):
            yield each.name

for package in ("shale", "shale_writer", "shale_compactor", "shale_gc", "shale_reader", "shale_cli"):
    for name in modules(package):
        if not name.startswith(("shale.testing.", "shale.kernels.source", "shale.kernels.compiler.")):
            importlib.import_module(name)

import shale
from shale.kernels.dispatch import use_kernels
assert not use_kernels()

async def main():
    rows = {b"%04d" % number: b"v" * 100 for number in range(500)}
    for _ in range(2):
        async with shale.Db.open("file://" + sys.argv[1]) as db:
            async with db.batch() as batch:
                for key, value in rows.items():
                    batch.put(key, value)
            await db.flush("memtable")
            assert await db.get(b"0007") == rows[b"0007"]
            assert {row.key: row.value async for row in db.scan()} == rows

asyncio.run(main())
"""


def test_every_module_is_imported_and_a_database_is_used(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SHALE_KERNELS": "off"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "db")],
        env=environment,
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
