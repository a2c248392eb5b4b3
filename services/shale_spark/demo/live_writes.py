"""Live writes and their changes: an HTTP client of a writer daemon, and the changes that a stream has seen."""

import threading
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import httpx

from shale.core.lazy_dataclass import dataclass
from shale_cli.demo.loader import Batch, encode_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REQUEST_TIMEOUT_S = 30


@dataclass(slots=True)
class SeenChanges:
    """Changes in the order in which a stream delivered them.  Filled by Spark's thread, read by another."""

    keys: list[bytes] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    _more: threading.Condition = field(default_factory=threading.Condition)

    def take(self, batch: "DataFrame", _batch_id: int) -> None:
        """Record one micro-batch; it arrives in the order of sequence numbers."""
        rows = batch.select("key", "seq").collect()
        with self._more:
            self.keys += [bytes(row["key"]) for row in rows]
            self.seqs += [row["seq"] for row in rows]
            self._more.notify_all()

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Wait until there are so many changes; return whether there are."""
        with self._more:
            return self._more.wait_for(lambda: len(self.keys) >= count, timeout_s)

    @property
    def ascends(self) -> bool:
        """Whether no sequence number is below the one before."""
        return self.seqs == sorted(self.seqs)


def write_batches(url: str, batches: Sequence[Batch]) -> int:
    """Write through a daemon, each batch durable before the next; return how many rows it acknowledged."""
    headers = {"content-type": "application/msgpack"}
    acknowledged = 0
    with httpx.Client(timeout=REQUEST_TIMEOUT_S) as client:
        for batch in batches:
            answer = client.post(f"{url}/v1/batch", content=encode_batch(batch), headers=headers)
            answer.raise_for_status()
            acknowledged += len(batch)
    return acknowledged
