"""Shared libraries of the image lose the sections that only debuggers read, and nothing else."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import REPOSITORY

SCRIPT = REPOSITORY / "deploy" / "strip_symbols.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("strip_symbols", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF")
def test_a_library_still_works(tmp_path: Path) -> None:
    found = importlib.util.find_spec("uvloop")
    assert found is not None
    assert found.origin is not None
    shutil.copytree(Path(found.origin).parent, tmp_path / "uvloop")
    (library,) = (tmp_path / "uvloop").glob("loop*.so")
    before = library.stat()
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, capture_output=True)
    assert library.stat().st_size < before.st_size / 2
    assert library.stat().st_mtime_ns == before.st_mtime_ns
    program = "import asyncio, uvloop; uvloop.run(asyncio.sleep(0)); print(uvloop.loop.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == str(library)
    assert script.strip(library) == 0


@pytest.mark.parametrize("content", [b"", b"INPUT(libx.so.1)\n", b"\x7fELF\x01\x01" + bytes(90)])
def test_other_files_stay(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "libx.so"
    file.write_bytes(content)
    assert script.strip(file) == 0
    assert file.read_bytes() == content


def test_the_kept_part_includes_segments_and_program_headers() -> None:
    """Also if a tool moved the program headers after the code."""
    image = bytearray(script.MAGIC + bytes(0x400 - 6))
    struct.pack_into("<Q", image, 0x20, 0x200)
    struct.pack_into("<HH", image, 0x36, 56, 2)
    for place, (offset, size) in ((0x200, (0, 0x100)), (0x200 + 56, (0x100, 0x80))):
        struct.pack_into("<QQQQ", image, place + 8, offset, 0, 0, size)
    assert script.end_of_segments(bytes(image)) == 0x200 + 2 * 56
    struct.pack_into("<QQQQ", image, 0x200 + 56 + 8, 0x100, 0, 0, 0x280)
    assert script.end_of_segments(bytes(image)) == 0x380
