"""Where compiled kernels are kept, and when they are compiled anew."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from shale.kernels.jit import with_our_rules

MODULE = """
import os, resource
from shale.kernels import jit
from shale.kernels.jit import kernel

jit._DIGEST = os.environ["DIGEST"]
size_max = int(os.environ["FILE_BYTES_MAX"])
resource.setrlimit(resource.RLIMIT_FSIZE, (size_max, size_max))

@kernel("int64(int64)")
def double(number):
    return 2 * number

print(double(21), sum(double.stats.cache_hits.values()))
"""


class ReadOnlyPlace:
    def __init__(self, path: Path) -> None:
        self._path = path

    def get_cache_path(self) -> str:
        return str(self._path)

    def ensure_cache_path(self) -> None:
        raise OSError("read-only")


def test_a_read_only_place_serves_if_it_was_filled(tmp_path: Path) -> None:
    place = with_our_rules(ReadOnlyPlace)(tmp_path)
    with pytest.raises(OSError, match="read-only"):
        place.ensure_cache_path()
    (tmp_path / "module.kernel-1.py311.nbi").touch()
    place.ensure_cache_path()


def run(folder: Path, *, source: str = MODULE, digest: str = "today", file_bytes_max: int = -1) -> str:
    """The kernel's answer, and how often its code came from the cache.

    Args:
        digest: of the kernels' files.
        file_bytes_max: nothing larger can be written.
    """
    module = folder / "module.py"
    module.write_text(source)
    ours = {"NUMBA_CACHE_DIR": str(folder / "cache"), "DIGEST": digest, "FILE_BYTES_MAX": str(file_bytes_max)}
    ours["NUMBA_DISABLE_JIT"] = "0"  # also where the tests themselves run without
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **ours}
    return subprocess.run([sys.executable, module], check=True, capture_output=True, text=True, env=env).stdout


def test_code_is_compiled_once_and_also_where_nothing_can_be_written(tmp_path: Path) -> None:
    assert run(tmp_path) == "42 0\n"
    assert run(tmp_path) == "42 1\n"
    for path in tmp_path.rglob("*.nb?"):
        path.unlink()
        path.mkdir()  # in the way of the file
    assert run(tmp_path) == "42 0\n"


UNREADABLE = [b"cgone\nKind\n.", b"cshale.kernels.jit\nGone\n.", b"", b"noise", b"}]Ns.", b"(NN."]


@pytest.mark.parametrize("entries", UNREADABLE)
def test_an_index_that_cannot_be_read_is_made_anew(tmp_path: Path, entries: bytes) -> None:
    """Another version of ours may have had other types, or somebody cut the file."""
    assert run(tmp_path) == "42 0\n"
    for path in tmp_path.rglob("*.nbi"):
        path.write_bytes(pickle.dumps(numba.__version__) + entries)
    assert run(tmp_path) == "42 0\n"
    assert run(tmp_path) == "42 1\n"


def test_an_index_that_can_be_neither_read_nor_replaced_stops_no_kernel(tmp_path: Path) -> None:
    assert run(tmp_path) == "42 0\n"
    for path in tmp_path.rglob("*.nbi"):
        path.write_bytes(pickle.dumps(numba.__version__) + b"noise")
    assert run(tmp_path, file_bytes_max=0) == "42 0\n"


def test_code_of_yesterday_that_could_not_be_replaced_does_not_run(tmp_path: Path) -> None:
    """The index comes first, and under the same name as before; then the disk is full, or the process dies."""
    assert run(tmp_path, digest="yesterday") == "42 0\n"
    (code,) = tmp_path.rglob("*.nbc")
    old = code.read_bytes()
    newer = MODULE.replace("2 * number", "3 * number")
    assert run(tmp_path, source=newer) == "63 0\n"
    code.write_bytes(old)
    assert run(tmp_path, source=newer) == "63 0\n"
    assert run(tmp_path, source=newer) == "63 1\n"
