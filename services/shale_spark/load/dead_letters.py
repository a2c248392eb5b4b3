"""Dead letters: rows that cannot be stored, written to a folder by the tasks of ``df.write``.

Spark gives a data source only batches inside a task, so tasks write the Parquet files themselves, through Shale's
stores.  A file counts once the driver's commit names it; files of failed or superseded attempts are removed.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale_spark.codecs import ValueCodec
from shale_spark.load.rows import rejection_reasons
from shale_spark.load.rules import REASON
from shale_spark.tasks import run_async

FILE_BYTES = 8 << 20
"""A task holds this many bytes of dead letters before it writes a file."""

SelectColumns = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFolder:
    """The dead letters of one write: a folder in a store, under a name that no other write has."""

    folder: DatabaseLocation
    write_id: str

    def write(self, batches: list[pa.RecordBatch]) -> str:
        """Write one file and return its name."""
        key = f"{self._prefix}{Env.system().ids.ulid()}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(batches), sink)
        data = sink.getvalue()

        async def put(store: ObjectStore) -> None:
            await store.put(key, memoryview(data))

        self._run(put)
        return key

    def keep(self, names: Iterable[str]) -> None:
        """Remove every file of this write except the named ones."""
        kept = frozenset(names)

        async def sweep(store: ObjectStore) -> None:
            found = [meta.key for meta in await store.list(self._prefix)]
            await gather([partial(store.delete, key) for key in found if key not in kept])

        self._run(sweep)

    @property
    def _prefix(self) -> str:
        return f"{self.folder.root}/write={self.write_id}/"

    def _run(self, work: Callable[[ObjectStore], Awaitable[None]]) -> None:
        async def main(env: Env) -> None:
            stores = self.folder.connect(env, Metrics(), component="pipeline")
            try:
                await work(stores.main)
            finally:
                await stores.aclose()

        run_async(main)


class DeadLetterCollector:
    """The dead letters of one task, in files of bounded size."""

    def __init__(self, letters: DeadLetterFolder | None, codec: ValueCodec | None, pick: SelectColumns) -> None:
        """Write nothing yet.

        Args:
            letters: the folder; ``None``: every row goes on, and the first invalid one ends the write.
            codec: makes values, if there is one.
            pick: selects the columns of ``rules`` from a user's batch.
        """
        self.names: list[str] = []
        self._letters = letters
        self._codec = codec
        self._pick = pick
        self._held: list[pa.RecordBatch] = []

    def storable(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a user's batches without the rows that cannot be stored.  Must be iterated where no event loop runs."""
        for batch in batches:
            yield batch if self._letters is None else self._split_invalid(batch)
        self._write()

    def _split_invalid(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        picked = self._pick(batch)
        reasons = rejection_reasons(picked, self._codec)
        if reasons.null_count == len(reasons):
            return batch
        rejected = picked.append_column(REASON, reasons)
        self._held.append(rejected.filter(pc.is_valid(reasons)))
        if sum(held.nbytes for held in self._held) >= FILE_BYTES:
            self._write()
        return batch.filter(pc.is_null(reasons))

    def _write(self) -> None:
        if self._letters is not None and self._held:
            self.names.append(self._letters.write(self._held))
            self._held = []
