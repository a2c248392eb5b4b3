"""One malloc arena for all threads, reused large buffers, and fewer garbage collections."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import threading
from shale.service.runtime_tuning import share_one_arena
share_one_arena()
def work():
    bytearray(1 << 20)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import ctypes
libc = ctypes.CDLL(None)
if hasattr(libc, "malloc_info"):
    libc.fopen.restype = ctypes.c_void_p
    out = libc.fopen(b"/dev/stdout", b"w")
    libc.malloc_info(0, ctypes.c_void_p(out))
    libc.fclose(ctypes.c_void_p(out))
"""


def test_threads_make_no_arenas_of_their_own() -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, env=env).stdout
    assert out.count("<heap nr=") <= 1


REUSE = """
import resource, sys
from shale.service.runtime_tuning import reuse_large_buffers
reuse_large_buffers(*map(int, sys.argv[1:]))
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(b"x") * (4 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def _page_faults(*arguments: str) -> int:
    """Return how many pages fifty buffers of four megabytes touch for the first time, of 51,200."""
    command = [sys.executable, "-c", REUSE, *arguments]
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout)


@pytest.mark.parametrize("limit_mib", [None, 256, 4096])
def test_a_large_buffer_is_the_memory_of_the_last_one(limit_mib: int | None) -> None:
    assert _page_faults(*() if limit_mib is None else (str(limit_mib << 20),)) < 1024


def test_a_buffer_that_is_large_for_the_memory_limit_is_not_kept() -> None:
    assert _page_faults(str(64 << 20)) > 40_000


_REQUESTS = """
import gc
from shale.service.runtime_tuning import tune_gc
tune_gc()
kept = list(map(str, range(100_000)))
before = [each["collections"] for each in gc.get_stats()]
for _ in range(1_000):
    rows = [(number,) for number in range(1_000)]
    del rows
after = [each["collections"] for each in gc.get_stats()]
ring = []
ring.append(ring)
del ring
print(sum(after) - sum(before), gc.collect())
"""


def test_requests_of_many_rows_set_off_no_search_and_cycles_are_still_found() -> None:
    told = subprocess.run([sys.executable, "-c", _REQUESTS], capture_output=True, text=True, check=True).stdout
    searches, found = map(int, told.split())
    assert searches == 0
    assert found >= 1


EVENT_LOOP = """
import anyio, asyncio, sys
if sys.argv[1:]:
    sys.modules[sys.argv[1]] = None
from shale.service.runtime_tuning import has_uvloop
async def main():
    print(type(asyncio.get_running_loop()).__module__.split(".")[0])
anyio.run(main, backend_options={"use_uvloop": has_uvloop()})
"""


@pytest.mark.parametrize(("missing", "loop"), [([], "uvloop"), (["uvloop"], "asyncio")])
def test_a_daemon_runs_on_uvloop_where_it_is_installed(missing: list[str], loop: str) -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", EVENT_LOOP, *missing]
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip() == loop


FILES = """
import resource, sys
from shale.service.runtime_tuning import connections_within_open_files, raise_open_files
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], [connections_within_open_files(most, 3) for most in (10, 4096)])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "said"), [(256, 1024, "1024 [10, 384]"), (256, 256, "256 [10, 96]"), (64, 4000, "4000 [10, 1500]")]
)
def test_the_limit_of_open_files_is_raised_and_divided(soft: int, hard: int, said: str) -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FILES, str(soft), str(hard)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip() == said
