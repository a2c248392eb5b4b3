"""A daemon without work: the shell of the daemons as a process.  ``FAIL`` makes it end in an error."""

import os
import sys
from typing import ClassVar

import anyio

from shale import errors
from shale.service.config.section import Section
from shale.service.config.settings import DaemonSettings
from shale.service.daemon import run_daemon
from shale.service.process import Process


class TaskSection(Section):
    """A section with one setting."""

    interval: float = 1.0


class IdleSettings(DaemonSettings):
    """A daemon without work."""

    ROLE: ClassVar[str] = "gc"

    task: TaskSection = TaskSection()


async def idle(process: Process[IdleSettings]) -> None:
    """Wait until the daemon is stopped; the environment may demand a failure."""
    async with anyio.create_task_group() as tg:
        if os.environ.get("FAIL_BEFORE_READY"):
            raise getattr(errors, os.environ["FAIL_BEFORE_READY"])("as asked")
        process.ready()
        tg.start_soon(anyio.sleep, 0)
        if os.environ.get("FAIL"):
            raise getattr(errors, os.environ["FAIL"])("as asked")
        await process.draining.wait()
        if os.environ.get("FAIL_AT_STOP"):
            raise getattr(errors, os.environ["FAIL_AT_STOP"])("as asked")
        with anyio.CancelScope(shield=bool(os.environ.get("STUBBORN"))):
            await anyio.sleep(float(os.environ.get("STOP_S", "0")))
        tg.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(run_daemon(IdleSettings, idle, sys.argv[1:]))
