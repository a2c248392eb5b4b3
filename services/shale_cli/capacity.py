"""What a load will need and cost, by simple formulas (docs/capacity.md): an estimate, made without a database."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shale.errors import InvalidRequestError

GIB = 1 << 30
MONTH_S = 30 * 86_400
READ_BYTES = 4 << 20
"""Of one request of a compaction (``shale.sst.source``)."""


class Figure(NamedTuple):
    """One result.  ``how``: the formula, in the names of options and of other figures."""

    name: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked about.  Sizes in bytes, times in seconds, money in one currency.

    Args:
        rate: written per second, keys and values.
        live: keys and values that are there at a time.
        gets: point reads per second, of which ``hit_ratio`` need no request.
        compression: how many times smaller SSTs are than their rows.
        write_amp: bytes of SSTs written per byte of rows, the L0s included; ``space_amp``: stored per live byte.
        throughput: what one compaction job reads per second.
        readers: processes that follow the database.
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


def figures(load: Load) -> Iterator[Figure]:
    """All results, those first that later ones are made of."""
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
    yield Figure("rows_per_s", rows, "/s", "rate / row")
    yield Figure("wal_puts_per_s", wal_puts, "/s", "min(rows_per_s, 1 / flush_interval)")
    yield Figure("l0_flushes_per_s", l0s, "/s", "rate / l0_size")
    yield Figure("compaction_bytes_per_s", compacted, "bytes/s", "rate * (write_amp - 1) / compression")
    yield Figure("compaction_jobs", compacted / load.throughput, "", "compaction_bytes_per_s / throughput")
    yield Figure("puts_per_s", puts, "/s", "wal_puts_per_s + SSTs / part_size + 2 * l0_flushes_per_s + 3 per output")
    yield Figure("gets_per_s", gets, "/s", "gets * (1 - hit_ratio) + compaction_bytes_per_s / 4MiB + polls")
    yield Figure("stored_bytes", stored, "bytes", "live * space_amp / compression")
    yield Figure("waiting_bytes", waiting, "bytes", "(rate + compaction_bytes_per_s) * gc_age + l0_size")
    put_cost = puts * MONTH_S / 1e6 * load.put_price
    get_cost = gets * MONTH_S / 1e6 * load.get_price
    storage_cost = (stored + waiting) / GIB * load.storage_price
    yield Figure("put_cost_per_month", put_cost, "", "puts_per_s * 30d * put_price / 1e6")
    yield Figure("get_cost_per_month", get_cost, "", "gets_per_s * 30d * get_price / 1e6")
    yield Figure("storage_cost_per_month", storage_cost, "", "(stored_bytes + waiting_bytes) / 1GiB * storage_price")
    yield Figure("cost_per_month", put_cost + get_cost + storage_cost, "", "the three together")
