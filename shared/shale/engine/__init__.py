"""The embedded engine: memtable, WAL, flush, replay, reads; ``Db`` and ``DbReader`` are thin fronts of tested parts."""
