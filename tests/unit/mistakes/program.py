"""Runs one mistake as a program would make it, and returns what the program is told.

A mistake is one or more lines of code, in which ``await`` is allowed.  It finds an open database ``db`` with a row
``k``, the blocking ``sync_db``, a ``reader``, and ``folder``, which has the databases ``orders`` and ``source``, and
``orders/clones/c``, a clone of ``source``.
"""

import ast
import inspect
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import shale
from shale import codecs, sync
from shale.errors import ShaleError
from shale.store.memory import MemoryStore


async def make_databases(folder: Path) -> None:
    """Create the databases of a folder."""
    for name in ("orders", "source"):
        async with shale.Db.open(folder / name) as db:
            await db.put(b"k", b"v")
            await db.flush("memtable")
    async with shale.Admin("orders/clones/c", store=folder) as admin:
        await admin.clones.create("source")


async def told(code: str, folder: Path) -> str:
    """Run a mistake; return the error and its text, and the warnings, with the folder as ``DIR``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with _names(folder) as names:
            error = await _error_of(code, names)
    lines = [] if error is None else [f"{_name_of(error)}: {error}"]
    lines += [f"{each.category.__name__}: {each.message}" for each in caught]
    return "\n".join(lines).replace(str(folder), "DIR")


@asynccontextmanager
async def _names(folder: Path) -> AsyncIterator[dict[str, Any]]:
    store = MemoryStore()
    db = await shale.Db.open("db", store=store, flush_interval=0)
    await (await db.put(b"k", b"v")).durable()
    reader = await shale.DbReader.open("db", store=store)
    with sync.Db.open("sync", store=MemoryStore()) as sync_db:
        yield {
            "shale": shale, "sync": sync, "codecs": codecs, "Path": Path, "datetime": datetime, "timedelta": timedelta,
            "store": store, "db": db, "reader": reader, "sync_db": sync_db, "folder": folder, "url": f"file://{folder}",
        }  # fmt: skip
    for handle in (reader, db):
        with suppress(ShaleError):  # the mistake may have ended it
            await handle.close()


async def _error_of(code: str, names: dict[str, Any]) -> BaseException | None:
    compiled = compile(code, "<mistake>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        running = eval(compiled, names)
        if inspect.iscoroutine(running):
            await running
    except Exception as error:  # noqa: BLE001 - whatever the program is told
        return error
    return None


def _name_of(error: BaseException) -> str:
    """Return the class of an error, with the standard one that also catches it."""
    standard = [each.__name__ for each in (TypeError, AttributeError) if isinstance(error, each)]
    name = type(error).__name__
    return f"{name} ({standard[0]})" if standard and name not in standard else name
