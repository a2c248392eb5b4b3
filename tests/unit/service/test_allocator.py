"""One arena for all threads."""

import os
import subprocess
import sys

PROGRAM = """
import threading
from shale.service.allocator import share_one_arena
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
