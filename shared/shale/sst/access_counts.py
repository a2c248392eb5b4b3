"""Counters of one database's reads of SSTs: plain integers, which metrics read before a scrape."""

from dataclasses import dataclass

from shale.telemetry.metrics import Metrics

_CACHE = {
    "index_hits": ("index", "hit"),
    "index_misses": ("index", "miss"),
    "filter_hits": ("filter", "hit"),
    "filter_misses": ("filter", "miss"),
    "block_hits": ("data_block", "hit"),
    "block_misses": ("data_block", "miss"),
}


@dataclass(slots=True)
class AccessCounts:
    """Look-ups in the cache by kind.  Filters come with the index; those of SSTs without any do not count."""

    index_hits: int = 0
    index_misses: int = 0
    filter_hits: int = 0
    filter_misses: int = 0
    block_hits: int = 0
    block_misses: int = 0

    def export(self, metrics: Metrics) -> None:
        """Show the counters in these metrics from now on."""
        children = {
            field: metrics.counter("slatedb_db_cache_accesses_total", entry_kind=kind, result=result)
            for field, (kind, result) in _CACHE.items()
        }
        shown = AccessCounts()

        def refresh() -> None:
            for field, child in children.items():
                child.inc(getattr(self, field) - getattr(shown, field))
                setattr(shown, field, getattr(self, field))

        metrics.before_scrape(refresh)
