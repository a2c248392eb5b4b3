"""Processes that share a directory and are killed in the middle of writes never see a wrong byte."""

import os
from pathlib import Path

import pytest

from tests.integration.sst.disk_reader import MAX_BYTES
from tests.paths import REPOSITORY
from tests.processes.forks import Fork

READS = 600


class Reader:
    """One process, which reports its progress."""

    def __init__(self, directory: Path, seed: int, *, limit: int = 0) -> None:
        path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "shared")])
        said, says = os.pipe()
        self._said = os.fdopen(said)
        with os.fdopen(says, "w") as out, Path(os.devnull).open("rb") as null:
            self.process = Fork(
                "tests.integration.sst.disk_reader",
                *(str(directory), str(seed), str(limit)),
                env={**os.environ, "PYTHONPATH": path},
                folder=REPOSITORY,
                stdio=(null, out, 2),
            )

    def until(self, reads: int) -> tuple[int, int, int]:
        """Return reads, hits and errors after the given number of reads; the process must still run."""
        for line in self._said:
            done, hits, errors = map(int, line.split())
            if done >= reads:
                return done, hits, errors
        raise AssertionError(f"it stopped with {self.process.wait()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()


def files_of(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_processes_that_are_killed(tmp_path: Path) -> None:
    steady = Reader(tmp_path, 1)
    try:
        for seed in range(2, 6):
            victim = Reader(tmp_path, seed)
            victim.until(50 * seed)
            victim.kill()
        _, hits, errors = steady.until(READS)
    finally:
        steady.kill()
    assert hits > 0
    assert errors == 0
    parts = [path for path in files_of(tmp_path) if path.suffix != ".new"]
    assert sum(path.stat().st_size for path in parts) < MAX_BYTES * (1 + 2 / 32) + (1 << 17)
    for path in parts[::5]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    last = Reader(tmp_path, 9)
    try:
        assert last.until(READS)[1] > 0
    finally:
        last.kill()


def test_writes_that_the_system_refuses(tmp_path: Path) -> None:
    """No file may grow beyond 20 KB, so no part can be written; reads do not fail."""
    reader = Reader(tmp_path, 1, limit=20_000)
    try:
        _, hits, errors = reader.until(READS)
    finally:
        reader.kill()
    assert hits == 0
    assert errors >= 1
    assert files_of(tmp_path) == []
