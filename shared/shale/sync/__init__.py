"""``shale.sync``: the same names as in ``shale``, for programs without asyncio: every call blocks (docs/sync.md).

One event loop in a thread of its own serves all handles of the process.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shale.client.sync_client import SyncClient as Client
    from shale.sync.admin import Admin
    from shale.sync.db import Db
    from shale.sync.db_reader import DbReader
    from shale.sync.scan import Scan
    from shale.sync.snapshot import Snapshot
    from shale.sync.transaction import Transaction
    from shale.sync.write_handle import WriteHandle

_HOMES = {
    "Admin": "shale.sync.admin",
    "Db": "shale.sync.db",
    "DbReader": "shale.sync.db_reader",
    "Scan": "shale.sync.scan",
    "Snapshot": "shale.sync.snapshot",
    "Transaction": "shale.sync.transaction",
    "WriteHandle": "shale.sync.write_handle",
}

__all__ = ["Admin", "Client", "Db", "DbReader", "Scan", "Snapshot", "Transaction", "WriteHandle"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        return importlib.import_module("shale.client").SyncClient
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shale.sync' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
