"""The stream reader of the data source ``shale``.

Spark provides exactly-once delivery: it stores the end of a batch before it asks for the batch, and asks for the same
batch again after a failure.  This reader guarantees that two offsets always mean the same changes in the same order:
WAL files never change, and a batch with a missing file fails.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from shale.engine.arrow.batches import in_batches
from shale.engine.wal.feed.offset import Edge, FeedOffset
from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.feed.reading import read_part
from shale.env import Env
from shale.kernels.rows import Rows
from shale.protocol.wal_store import WalStore
from shale.telemetry.metrics import Metrics
from shale_spark.arrow import arrow_schema
from shale_spark.changes.columns import ChangeColumns
from shale_spark.changes.options import ChangesOptions
from shale_spark.changes.planner import StreamPlanner
from shale_spark.tasks import prepare_process

_ROWS_MAX = 64 * 1024
_BYTES_MAX = 16 * 1024 * 1024


class ChangesPartition(InputPartition):
    """The part of a batch that one task reads."""

    def __init__(self, part: FeedPart) -> None:
        super().__init__((part.first_id, part.last_id, part.after_seq, part.is_inside))

    @property
    def part(self) -> FeedPart:
        """The decoded plan."""
        return FeedPart(*self.value)


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process beside the driver, and reads their parts in tasks."""

    def __init__(self, options: ChangesOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None
        self._last_id: int | None = None
        self._begun: FeedOffset | None = None
        self._is_begin_stored = options.start is not Edge.LATEST
        self._columns()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planner": None}  # tasks only read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the interface's name
        """Return where a new query begins; Spark asks twice and must get the same answer."""
        if self._begun is None:
            self._begun = self._following().begin()
        return self._begun.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much one batch takes."""
        return ReadAllAvailable() if self._options.max_files is None else ReadMaxFiles(self._options.max_files)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; called once everything up to ``start`` has been processed."""
        begun = FeedOffset.from_json(start)
        follower = self._following()
        follower.keep(begun)
        if begun == self._begun and not self._is_begin_stored:
            # Spark stores the end of a batch but not the start of the first one, and asks for it again after a
            # failure, when the latest change is another one.  An empty first batch stores it.
            self._is_begin_stored = True
            return start
        max_files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        if self._last_id is not None:
            left = max(0, self._last_id - begun.wal_id)
            max_files = left if max_files is None else min(left, max_files)
        return follower.end(begun, max_files).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the WAL files that exist now."""
        self._last_id = self._following().frontier_id()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts of a batch, in the order of their changes."""
        parts = self._following().plan(FeedOffset.from_json(start), FeedOffset.from_json(end))
        return [ChangesPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of one part; called in a task."""
        assert isinstance(partition, ChangesPartition)
        columns = self._columns()
        for wal_id, rows in _read(self._options, partition.part):
            for piece in in_batches(rows, rows_max=_ROWS_MAX, bytes_max=_BYTES_MAX):
                yield columns.batch(wal_id, piece)

    def commit(self, end: dict[str, Any]) -> None:
        """Record that everything up to ``end`` was processed."""
        self._following().keep(FeedOffset.from_json(end))

    def stop(self) -> None:
        """Disconnect at the end of the query."""
        follower, self._planner = self._planner, None
        if follower is not None:
            follower.close()

    def _following(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner

    def _columns(self) -> ChangeColumns:
        options = self._options
        return ChangeColumns.of(
            arrow_schema(self._schema), options.codec(), options.value_format, options.on_decode_error
        )


def _read(options: ChangesOptions, part: FeedPart) -> Iterator[tuple[int, Rows]]:
    """Yield the changes of a part, file by file, in a thread without an event loop."""
    prepare_process()
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_opened(options, part)) as files,
    ):

        async def following() -> tuple[int, Rows] | None:
            return await anext(files, None)

        while (file := portal.call(following)) is not None:
            yield file


@asynccontextmanager
async def _opened(options: ChangesOptions, part: FeedPart) -> AsyncIterator[AsyncIterator[tuple[int, Rows]]]:
    env = Env.system()
    stores = options.where.connect(env, Metrics(), component="pipeline")
    try:
        where = options.where
        wal = WalStore(stores.wal or stores.main, where.root, transformer=where.block_transformer)
        async with aclosing(read_part(wal, part, env, on_gap=options.on_gap)) as files:
            yield files
    finally:
        await stores.aclose()
