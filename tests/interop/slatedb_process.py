"""What the slatedb package reads of a database, in a process of its own: damaged bytes can end that process."""

import asyncio
import os
import pickle
import select
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from slatedb import uniffi as slate
from slatedb.uniffi._slatedb_uniffi.slatedb import InternalError

from tests.interop.slatedb_databases import open_folder, scanned

PackageRows = list[tuple[Any, ...]] | None
"""The rows, or ``None`` if the package refuses, panics, aborts or does not end."""

_PATIENCE_S = 4.0
_ANSWER_S = 6.0
"""After it the process is ended: the package does not return to its event loop."""


class PackageProcess:
    """Reads databases, one after the other; a process that ends is replaced with the next request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def rows(self, folder: Path) -> PackageRows:
        """Return the rows of the database ``db`` in a folder."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(folder, process.stdin)
            process.stdin.flush()
            if select.select([process.stdout], [], [], _ANSWER_S)[0]:
                rows: PackageRows = pickle.load(process.stdout)
                return rows
        except (EOFError, pickle.UnpicklingError, BrokenPipeError):
            pass  # it ended
        self.close()
        return None

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            with self._process:
                self._process = None

    def _start(self) -> "subprocess.Popen[bytes]":
        self.close()
        # Its end of the pipe is closed with this process, however that ends, and ends it, too.
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process


@cache
def package_process() -> PackageProcess:
    """Return the one of this process."""
    return PackageProcess()


async def _read(folder: Path) -> PackageRows:
    with suppress(slate.Error, InternalError, TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            reader = await slate.DbReaderBuilder("db", open_folder(folder)).build()
            try:
                return await scanned(reader)
            finally:
                await reader.shutdown()
    return None


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    with asyncio.Runner() as runner, suppress(EOFError):
        while True:
            folder = pickle.load(requests)
            pickle.dump(runner.run(_read(folder)), answers)
            answers.flush()


if __name__ == "__main__":
    own_answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the package prints is no answer
    _serve(sys.stdin.buffer, own_answers)
