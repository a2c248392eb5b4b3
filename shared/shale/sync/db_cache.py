"""The cache of an open database; its calls block."""

from shale.concurrency.blocking import BlockingHandle, blocking
from shale.engine import db_cache


class DbCache(BlockingHandle[db_cache.DbCache]):
    """See ``shale.engine.db_cache.DbCache``."""

    warm = blocking(db_cache.DbCache.warm)
    warm_sst = blocking(db_cache.DbCache.warm_sst)
    evict = blocking(db_cache.DbCache.evict)
    evict_sst = blocking(db_cache.DbCache.evict_sst)
