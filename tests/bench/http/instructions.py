"""Counts the instructions of parts of a program: unlike times, they are the same on a busy machine.

The program runs under ``valgrind --tool=callgrind``.  It counts nothing until the program asks for it, by a sequence of
instructions that does nothing outside of valgrind (``valgrind.h``, "client requests").
"""

import ctypes
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.paths import PYTHONPATH

TOOL = "valgrind"
TIMEOUT_S = 3600
_CODE = bytes.fromhex("4889f831d248c1c70348c1c70d48c1c73d48c1c7334887db4889d0c3")
"""rax = the address of a request, rdx = 0; four rotations of rdi and an exchange, which are the sign; return rdx."""
_CALLGRIND = ord("C") << 24 | ord("T") << 16
_ZERO, _DUMP_AT, _START, _STOP = 1, 3, 4, 5
_WORDS = 6
_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class InstructionCounter:
    """The side of the program: counts between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._request = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)

    def start(self) -> None:
        """Count from now on."""
        self._send(_START)
        self._send(_ZERO)

    def stop(self, name: str) -> None:
        """Write what was counted since ``start`` under a name, and count no more."""
        text = ctypes.create_string_buffer(name.encode())
        self._send(_DUMP_AT, ctypes.addressof(text))
        self._send(_STOP)

    def _send(self, number: int, argument: int = 0) -> None:
        words = (ctypes.c_uint64 * _WORDS)(_CALLGRIND + number, argument)
        self._request(ctypes.addressof(words))


def can_count() -> bool:
    """Return whether instructions can be counted here; say on stderr why not."""
    if shutil.which(TOOL) is None or os.uname().machine != "x86_64":
        sys.stderr.write(f"instructions: need {TOOL} and a processor of x86_64\n")
        return False
    return True


def count_instructions(folder: Path, module: str, *arguments: str, env: Mapping[str, str]) -> dict[str, list[int]]:
    """Run a module that uses ``InstructionCounter``; return its counts by name, in order."""
    tool = [TOOL, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
    fixed = {"PYTHONPATH": PYTHONPATH, "PYTHONHASHSEED": "0"}
    with (folder / "log").open("wb") as log:
        ended = subprocess.run(
            [*tool, sys.executable, "-m", module, *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, **fixed, **env},
            timeout=TIMEOUT_S,
            check=False,
        )
    assert ended.returncode == 0, (folder / "log").read_text()
    counts: dict[str, list[int]] = {}
    for file in sorted(folder.glob("counts.*"), key=lambda file: int(file.suffix[1:])):
        text = file.read_text()
        name, total = _TRIGGER.search(text), _TOTALS.search(text)
        if name is not None and total is not None:
            counts.setdefault(name[1], []).append(int(total[1]))
    return counts
