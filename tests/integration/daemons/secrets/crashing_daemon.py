"""A daemon that ends in an error with secrets in its text, in its local variables and in its cause.

``CRASH`` chooses the error: ``panic`` or ``unexpected``; ``task``: an error that only the event loop sees.
"""

import asyncio
import os
import sys

import anyio

from shale.errors import ProtocolPanic
from shale.service.config.secret_url import url_text
from shale.service.daemon import run_daemon
from shale.service.process import Process
from tests.integration.daemons.idle_daemon import IdleSettings


async def crash(process: Process[IdleSettings]) -> None:
    """Raise the error that the environment names."""
    process.ready()
    address = str(url_text(process.settings.store.endpoint))
    access = {"secret_access_key": process.settings.store.secret_access_key, "text": "planted-local"}
    kind = os.environ["CRASH"]
    if kind == "panic":
        raise ProtocolPanic("no two writers", state={"url": address, "password": access["text"]})
    if kind == "task":
        asyncio.get_running_loop().create_task(_fail(address))
        await anyio.sleep(0.1)
    await _fail(address)


async def _fail(address: str) -> None:
    try:
        raise ConnectionError(f"{address}/a?sig=planted-signature is away")
    except ConnectionError as error:
        raise RuntimeError(f"cannot reach {address}") from error


if __name__ == "__main__":
    sys.exit(run_daemon(IdleSettings, crash, sys.argv[1:]))
