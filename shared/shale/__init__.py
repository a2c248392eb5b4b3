"""Shale: a storage engine for key-value databases that live entirely in an object store.

Names are loaded when they are first used, so ``import shale`` costs next to nothing.
"""

from typing import TYPE_CHECKING

from shale.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.clones.parent_checkpoint import ParentCheckpoint
    from shale.compaction.filters import CompactionFilter, Decisions, FilterContext, RowBatch
    from shale.core.ttl import NEVER
    from shale.crypto.aes_gcm import AesGcm
    from shale.engine.configure import configure
    from shale.engine.db import Db
    from shale.engine.db_reader import DbReader
    from shale.engine.open_options import ConnectOptions, DbOpenOptions, ReaderOpenOptions
    from shale.engine.options import DbOptions, FlushType
    from shale.engine.read.snapshot import Snapshot
    from shale.engine.reader.options import ReaderOptions
    from shale.engine.txn.transaction import Transaction
    from shale.engine.warm import CacheTarget
    from shale.engine.write.batch import WriteBatch
    from shale.engine.write.live_writer import LiveWriter
    from shale.engine.write.write_handle import WriteHandle
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
    from shale.format.sst.filter_policy import BloomPolicy, DelimitedPrefix, FixedPrefix
    from shale.sst.budget import MemoryBudget
    from shale.store.options import RetryPolicy, StoreOptions
    from shale.store.wal_backend import WalBackend, WalEntry
    from shale.types import Row

_MODULES = {
    "codecs": "shale.codecs",
    "sync": "shale.sync",
    "BloomPolicy": "shale.format.sst.filter_policy",
    "DelimitedPrefix": "shale.format.sst.filter_policy",
    "FixedPrefix": "shale.format.sst.filter_policy",
    "CacheTarget": "shale.engine.warm",
    "Admin": "shale.admin.admin",
    "AesGcm": "shale.crypto.aes_gcm",
    "ClosedError": "shale.errors",
    "ConflictError": "shale.errors",
    "RowBatch": "shale.compaction.filters",
    "FilterContext": "shale.compaction.filters",
    "Decisions": "shale.compaction.filters",
    "CompactionFilter": "shale.compaction.filters",
    "CorruptionError": "shale.errors",
    "Db": "shale.engine.db",
    "ConnectOptions": "shale.engine.open_options",
    "DbOpenOptions": "shale.engine.open_options",
    "DbOptions": "shale.engine.options",
    "DbReader": "shale.engine.db_reader",
    "Env": "shale.env",
    "FencedError": "shale.errors",
    "FlushType": "shale.engine.options",
    "InvalidRequestError": "shale.errors",
    "LiveWriter": "shale.engine.write.live_writer",
    "NEVER": "shale.core.ttl",
    "NotFoundError": "shale.errors",
    "ParentCheckpoint": "shale.clones.parent_checkpoint",
    "ReaderOpenOptions": "shale.engine.open_options",
    "ReaderOptions": "shale.engine.reader.options",
    "MemoryBudget": "shale.sst.budget",
    "RetryPolicy": "shale.store.options",
    "Row": "shale.types",
    "ShaleError": "shale.errors",
    "Snapshot": "shale.engine.read.snapshot",
    "StoreOptions": "shale.store.options",
    "Transaction": "shale.engine.txn.transaction",
    "TransactionConflict": "shale.errors",
    "UnavailableError": "shale.errors",
    "WalBackend": "shale.store.wal_backend",
    "WalEntry": "shale.store.wal_backend",
    "WriteBatch": "shale.engine.write.batch",
    "WriteHandle": "shale.engine.write.write_handle",
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
    "ConnectOptions",
    "CorruptionError",
    "Db",
    "DbOpenOptions",
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
    "LiveWriter",
    "MemoryBudget",
    "NotFoundError",
    "ParentCheckpoint",
    "ReaderOpenOptions",
    "ReaderOptions",
    "RetryPolicy",
    "Row",
    "RowBatch",
    "ShaleError",
    "Snapshot",
    "StoreOptions",
    "Transaction",
    "TransactionConflict",
    "UnavailableError",
    "WalBackend",
    "WalEntry",
    "WriteBatch",
    "WriteHandle",
    "configure",
]

if not TYPE_CHECKING:  # so that type checkers refuse other names
    __getattr__, __dir__ = lazy_names(globals(), _MODULES, __all__)
