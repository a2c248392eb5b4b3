"""Estimates the resources and the cost of a workload with simple formulas (docs/how-to/capacity.md)."""

from collections.abc import Iterator
from typing import NamedTuple

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

GIB = 1 << 30
MONTH_S = 30 * 86_400
READ_BYTES = 4 << 20
"""Bytes of one read request of a compaction (``shale.sst.source``)."""


class Estimate(NamedTuple):
    """One estimate.  ``how``: its formula, in terms of options and of other estimates."""

    name: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWorkload:
    """A workload.  Sizes are in bytes, times in seconds, prices in any one currency.

    Args:
        rate: bytes of keys and values written per second.
        live: bytes of live keys and values.
        gets: point reads per second; the share ``hit_ratio`` of them needs no request.
        compression: size of rows divided by the size of their SSTs.
        write_amp: bytes of SSTs written per byte of rows, L0s included; ``space_amp``: bytes stored per live byte.
        throughput: bytes that one compaction job reads per second.
        readers: reader processes that follow the database.
    """

    rate: float
    live: float
    row: float
    gets: float
    hit_ratio: float
    flush_interval: float
    l0_size: float
    part_size: float
    sst_size: float
    compression: float
    write_amp: float
    space_amp: float
    throughput: float
    readers: int
    gc_age: float
    put_price: float
    get_price: float
    storage_price: float

    def __post_init__(self) -> None:
        for name in ("row", "flush_interval", "l0_size", "part_size", "sst_size", "compression", "throughput"):
            if getattr(self, name) <= 0:
                raise InvalidRequestError(f"{name.replace('_', '-')} must be greater than 0")
        if not 0 <= self.hit_ratio <= 1:
            raise InvalidRequestError("hit-ratio must be between 0 and 1")
        if self.write_amp < 1 or self.space_amp < 1:
            raise InvalidRequestError("write-amp and space-amp are at least 1")


def estimates(load: CapacityWorkload) -> Iterator[Estimate]:
    """Yield all estimates; each one only depends on earlier ones."""
    rows = load.rate / load.row
    wal_puts = min(rows, 1 / load.flush_interval)
    l0s = load.rate / load.l0_size
    compacted = load.rate * (load.write_amp - 1) / load.compression
    parts = load.rate / load.compression / load.part_size + compacted / load.part_size
    commits = 2 * l0s + 3 * compacted / load.sst_size
    polls = (1 + load.readers / 10 + 2 / 5) * 2
    puts, gets = wal_puts + parts + commits, load.gets * (1 - load.hit_ratio) + compacted / READ_BYTES + polls
    stored = load.live * load.space_amp / load.compression
    waiting = (load.rate + compacted) * load.gc_age + (load.l0_size if load.rate else 0)
    yield Estimate("rows_per_s", rows, "/s", "rate / row")
    yield Estimate("wal_puts_per_s", wal_puts, "/s", "min(rows_per_s, 1 / flush_interval)")
    yield Estimate("l0_flushes_per_s", l0s, "/s", "rate / l0_size")
    yield Estimate("compaction_bytes_per_s", compacted, "bytes/s", "rate * (write_amp - 1) / compression")
    yield Estimate("compaction_jobs", compacted / load.throughput, "", "compaction_bytes_per_s / throughput")
    yield Estimate("puts_per_s", puts, "/s", "wal_puts_per_s + SSTs / part_size + 2 * l0_flushes_per_s + 3 per output")
    yield Estimate("gets_per_s", gets, "/s", "gets * (1 - hit_ratio) + compaction_bytes_per_s / 4MiB + polls")
    yield Estimate("stored_bytes", stored, "bytes", "live * space_amp / compression")
    yield Estimate("waiting_bytes", waiting, "bytes", "(rate + compaction_bytes_per_s) * gc_age + l0_size")
    put_cost = puts * MONTH_S / 1e6 * load.put_price
    get_cost = gets * MONTH_S / 1e6 * load.get_price
    storage_cost = (stored + waiting) / GIB * load.storage_price
    yield Estimate("put_cost_per_month", put_cost, "", "puts_per_s * 30d * put_price / 1e6")
    yield Estimate("get_cost_per_month", get_cost, "", "gets_per_s * 30d * get_price / 1e6")
    yield Estimate("storage_cost_per_month", storage_cost, "", "(stored_bytes + waiting_bytes) / 1GiB * storage_price")
    yield Estimate("cost_per_month", put_cost + get_cost + storage_cost, "", "the three together")
