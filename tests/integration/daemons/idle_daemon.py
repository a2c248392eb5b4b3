"""A daemon that only waits: what the shell does by itself, as a process.  ``FAIL`` makes it end in an error."""

import os
import sys
from typing import ClassVar

import anyio

from shale import errors
from shale.service.daemon import run_daemon
from shale.service.process import Process
from shale.service.sections import Section
from shale.service.settings import DaemonSettings


class TaskSection(Section):
    """Something to set."""

    interval: float = 1.0


class IdleSettings(DaemonSettings):
    """A daemon without work."""

    ROLE: ClassVar[str] = "gc"

    task: TaskSection = TaskSection()


async def idle(process: Process[IdleSettings]) -> None:
    """Wait to be told to stop; the environment may ask for something worse."""
    async with anyio.create_task_group() as tg:
        if os.environ.get("FAIL_BEFORE_READY"):
            raise getattr(errors, os.environ["FAIL_BEFORE_READY"])("as asked")
        process.ready()
        tg.start_soon(anyio.sleep, 0)
        if os.environ.get("FAIL"):
            raise getattr(errors, os.environ["FAIL"])("as asked")
        await process.draining.wait()
        with anyio.CancelScope(shield=bool(os.environ.get("STUBBORN"))):
            await anyio.sleep(float(os.environ.get("STOP_S", "0")))
        tg.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(run_daemon(IdleSettings, idle, sys.argv[1:]))
