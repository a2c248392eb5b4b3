"""``shale.sync``: the names of ``shale`` for programs without asyncio; every call blocks (docs/how-to/sync.md).

One event loop in a thread of its own serves all handles of the process.
"""

from typing import TYPE_CHECKING

from shale.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from shale.sync.admin import Admin
    from shale.sync.client import Client
    from shale.sync.db import Db
    from shale.sync.db_reader import DbReader
    from shale.sync.scan import Scan
    from shale.sync.snapshot import Snapshot
    from shale.sync.transaction import Transaction
    from shale.sync.write_handle import WriteHandle

_MODULES = {
    "Client": "shale.sync.client",
    "Admin": "shale.sync.admin",
    "Db": "shale.sync.db",
    "DbReader": "shale.sync.db_reader",
    "Scan": "shale.sync.scan",
    "Snapshot": "shale.sync.snapshot",
    "Transaction": "shale.sync.transaction",
    "WriteHandle": "shale.sync.write_handle",
}

__all__ = ["Admin", "Client", "Db", "DbReader", "Scan", "Snapshot", "Transaction", "WriteHandle"]

if not TYPE_CHECKING:  # so that type checkers refuse other names
    __getattr__, __dir__ = lazy_names(globals(), _MODULES, __all__)
