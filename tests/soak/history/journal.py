"""Histories in files: written line by line by clients, and read one part of the keys after the other."""

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path

from tests.soak.history.operation import Operation

SUFFIX = ".ops.jsonl"
PARTS = 32


class Journal:
    """Appends the operations of one process to a file; keeps nothing in memory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}{SUFFIX}").open("a")

    def add(self, operation: Operation) -> None:
        """Write one line; a process that is killed loses at most the end of its last line."""
        self._file.write(json.dumps(astuple(operation)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def operations(folder: Path) -> Iterator[Operation]:
    """Read the operations of all processes, file by file."""
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        with file.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield Operation(*json.loads(line))


def partition_of(operation: Operation) -> str:
    """Return the name that all operations share which must be judged together.

    Keys are ``kind/group/member``: the keys of a group are read and written by the same transactions.  Keys with two
    parts are judged one by one.
    """
    return operation.key.rsplit("/", 1)[0] if operation.function in ("txn", "batch", "scan") else operation.key


def split(source: Iterable[Operation], folder: Path) -> list[Path]:
    """Distribute operations over files, so that one part fits into memory; a partition is in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number:02d}.jsonl" for number in range(PARTS)]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w")) for path in paths]
        for operation in source:
            number = zlib.crc32(partition_of(operation).encode()) % PARTS
            files[number].write(json.dumps(astuple(operation)) + "\n")
    return paths


def load(path: Path) -> dict[str, list[Operation]]:
    """Read one part: the operations of each partition, in the order of their start."""
    found: dict[str, list[Operation]] = {}
    with path.open() as lines:
        for line in lines:
            operation = Operation(*json.loads(line))
            found.setdefault(partition_of(operation), []).append(operation)
    for each in found.values():
        each.sort(key=lambda operation: operation.start)
    return found
