"""Shale: a storage engine for key-value databases that live entirely in an object store.

Names are loaded when they are first used, so ``import shale`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.compaction.filters import CompactionFilter, Decisions, FilterContext, RowBatch
    from shale.engine.aes_gcm import AesGcm
    from shale.engine.batch import WriteBatch
    from shale.engine.configure import configure
    from shale.engine.db import Db
    from shale.engine.db_reader import DbReader
    from shale.engine.lifetime import NEVER
    from shale.engine.options import DbOptions, FlushType
    from shale.engine.reader_options import ReaderOptions
    from shale.engine.snapshot import Snapshot
    from shale.engine.transaction import Transaction
    from shale.engine.warm import CacheTarget
    from shale.engine.write_handle import WriteHandle
    from shale.env import Env
    from shale.errors import (
        ClosedError,
        ConflictError,
        CorruptionError,
        FencedError,
        InvalidRequestError,
        NotFoundError,
        ShaleError,
        TransactionConflict,
        UnavailableError,
    )
    from shale.format.bloom import BloomPolicy, DelimitedPrefix, FixedPrefix
    from shale.sst.budget import MemoryBudget
    from shale.types import Row

_HOMES = {
    "BloomPolicy": "shale.format.bloom",
    "DelimitedPrefix": "shale.format.bloom",
    "FixedPrefix": "shale.format.bloom",
    "CacheTarget": "shale.engine.warm",
    "Admin": "shale.admin.admin",
    "AesGcm": "shale.engine.aes_gcm",
    "ClosedError": "shale.errors",
    "ConflictError": "shale.errors",
    "RowBatch": "shale.compaction.filters",
    "FilterContext": "shale.compaction.filters",
    "Decisions": "shale.compaction.filters",
    "CompactionFilter": "shale.compaction.filters",
    "CorruptionError": "shale.errors",
    "Db": "shale.engine.db",
    "DbOptions": "shale.engine.options",
    "DbReader": "shale.engine.db_reader",
    "Env": "shale.env",
    "FencedError": "shale.errors",
    "FlushType": "shale.engine.options",
    "InvalidRequestError": "shale.errors",
    "NEVER": "shale.engine.lifetime",
    "NotFoundError": "shale.errors",
    "ReaderOptions": "shale.engine.reader_options",
    "MemoryBudget": "shale.sst.budget",
    "Row": "shale.types",
    "ShaleError": "shale.errors",
    "Snapshot": "shale.engine.snapshot",
    "Transaction": "shale.engine.transaction",
    "TransactionConflict": "shale.errors",
    "UnavailableError": "shale.errors",
    "WriteBatch": "shale.engine.batch",
    "WriteHandle": "shale.engine.write_handle",
    "configure": "shale.engine.configure",
}

__all__ = [
    "NEVER",
    "Admin",
    "AesGcm",
    "BloomPolicy",
    "CacheTarget",
    "ClosedError",
    "CompactionFilter",
    "ConflictError",
    "CorruptionError",
    "Db",
    "DbOptions",
    "DbReader",
    "Decisions",
    "DelimitedPrefix",
    "Env",
    "FencedError",
    "FilterContext",
    "FixedPrefix",
    "FlushType",
    "InvalidRequestError",
    "MemoryBudget",
    "NotFoundError",
    "ReaderOptions",
    "Row",
    "RowBatch",
    "ShaleError",
    "Snapshot",
    "Transaction",
    "TransactionConflict",
    "UnavailableError",
    "WriteBatch",
    "WriteHandle",
    "configure",
]


def __getattr__(name: str) -> Any:
    if name in ("codecs", "sync"):
        return importlib.import_module(f"shale.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shale' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
