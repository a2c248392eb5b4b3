"""Counters of SST reads of one database: plain integers that metrics collect before a scrape."""

from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.kernels.layout import point_lookup as layout
from shale.kernels.rows import I64
from shale.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shale.telemetry.instruments import Counter


def _kernel_words() -> I64:
    return np.zeros(layout.OUT_WORDS, np.int64)


@dataclass(slots=True, eq=False)
class AccessCounts:
    """Accesses of caches and filters.  A filter is read with the index; an SST without filters does not count.

    ``kernel`` is the output buffer of lookup kernels: the result, then their counts.  A lookup that a kernel leaves
    pending is counted when it is resumed.  Interpreted lookups that need no I/O are not counted.
    """

    index_hits: int = 0
    index_misses: int = 0
    filter_hits: int = 0
    filter_misses: int = 0
    block_hits: int = 0
    block_misses: int = 0
    point_positives: int = 0
    point_negatives: int = 0
    point_false_positives: int = 0
    prefix_positives: int = 0
    prefix_negatives: int = 0
    kernel: I64 = field(default_factory=_kernel_words)

    def totals(self) -> tuple[int, ...]:
        """Return all counts, in the order of ``_counters``."""
        negatives, positives, false_positives, ssts, blocks = self.kernel[slice(*layout.OUT_COUNTS)].tolist()
        return (
            self.index_hits + ssts,
            self.index_misses,
            self.filter_hits + negatives + positives,
            self.filter_misses,
            self.block_hits + blocks,
            self.block_misses,
            self.point_positives + positives,
            self.point_negatives + negatives,
            self.point_false_positives + false_positives,
            self.prefix_positives,
            self.prefix_negatives,
        )

    @contextmanager
    def kernel_paused(self) -> "Iterator[None]":
        """Count no lookups of kernels: what they look at was counted when it was read."""
        counts = self.kernel[slice(*layout.OUT_COUNTS)]
        before = counts.copy()
        try:
            yield
        finally:
            counts[:] = before

    def export(self, metrics: Metrics) -> None:
        """Export the counters to these metrics."""
        children = tuple(_counters(metrics))
        shown = (0,) * len(children)

        def refresh() -> None:
            nonlocal shown
            # A hit that a lookup will count again is taken back first, so a total may be below the one shown before.
            totals = tuple(map(max, self.totals(), shown))
            for child, now, before in zip(children, totals, shown, strict=True):
                child.inc(now - before)
            shown = totals

        metrics.before_scrape(refresh)


def _counters(metrics: Metrics) -> "Iterator[Counter]":
    for kind in ("index", "filter", "data_block"):
        for result in ("hit", "miss"):
            yield metrics.counter("slatedb_db_cache_accesses_total", entry_kind=kind, result=result)
    for outcome in ("positives", "negatives", "false_positives"):
        yield metrics.counter(f"slatedb_db_sst_filter_{outcome}_total", kind="point")
    for outcome in ("positives", "negatives"):
        yield metrics.counter(f"slatedb_db_sst_filter_{outcome}_total", kind="prefix")
