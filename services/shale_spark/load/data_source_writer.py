"""``df.write.format("shale")``: rows through a writer daemon, or a new database of sorted SSTs.

Spark makes one of these writers in the driver, runs its copies in tasks, and commits in the driver.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from shale.core.lazy_dataclass import dataclass
from shale.engine.load.manifest import LoadStamp
from shale.engine.load.target import NewDatabase
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from shale_spark.errors import message_only
from shale_spark.load.append import append_rows
from shale_spark.load.batch_sender import BatchSender
from shale_spark.load.batches import select_stored_columns
from shale_spark.load.dead_letters import DeadLetterCollector, DeadLetterFolder
from shale_spark.load.load_task import decode_result, encode_result, run_load_task
from shale_spark.load.rules import LoadTaskPlan, LoadTaskResult, RowRules
from shale_spark.load.write_options import AppendRequest, dead_letters_folder, write_request
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from shale_spark.load.request import LoadRequest


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """The result of a task: the number of rows sent or the SSTs built, and its dead letters."""

    rows: int = 0
    part: bytes = b""
    dead_letters: tuple[str, ...] = ()


def make_writer(options: Mapping[str, str], *, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer for these options.

    Raises:
        InvalidRequestError: the options are invalid, or existing rows are to be replaced.
        InvalidDbState: a database is to be built where there is one.
    """
    if overwrite:
        raise InvalidRequestError('overwrite is not supported for a database: use .mode("append")')
    request, folder = write_request(options), dead_letters_folder(options)
    letters = None if folder is None else DeadLetterFolder(folder=folder, write_id=str(Env.system().ids.ulid()))
    return AppendWriter(request, letters) if isinstance(request, AppendRequest) else BuildWriter(request, letters)


class _Writer(DataSourceArrowWriter):
    """The handling of dead letters, which both writers share."""

    def __init__(self, request: "AppendRequest | LoadRequest", letters: DeadLetterFolder | None) -> None:
        self._pick = partial(select_stored_columns, columns=request.columns, has_codec=request.codec is not None)
        self._codec = request.codec
        self._letters = letters

    def dead_letter_collector(self) -> DeadLetterCollector:
        """Return the collector of one task."""
        return DeadLetterCollector(self._letters, self._codec, self._pick)

    @message_only()
    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Keep the dead letters of the attempts that count."""
        if self._letters is not None:
            written = [message for message in messages if isinstance(message, TaskCommitMessage)]
            self._letters.keep(name for message in written for name in message.dead_letters)

    @message_only()
    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:  # noqa: ARG002 - the base class has it
        """Delete all dead letters: a repeated write finds the same ones."""
        if self._letters is not None:
            self._letters.keep(())


class AppendWriter(_Writer):
    """Each task sends its rows in batches.  If a key occurs in several partitions, any of its rows may win."""

    def __init__(self, request: AppendRequest, letters: DeadLetterFolder | None = None) -> None:
        super().__init__(request, letters)
        self._request = request
        self._name = str(Env.system().ids.ulid())

    @message_only()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Send the rows of one partition."""
        letters = self.dead_letter_collector()
        rows = run_async(partial(self._send, letters.storable(iterator)))
        return TaskCommitMessage(rows=rows, dead_letters=tuple(letters.names))

    async def _send(self, batches: Iterator[pa.RecordBatch], env: Env) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "called in a task"
        async with self._request.endpoint.client() as client:
            sender = BatchSender(self._request.endpoint, client, env, name=f"{self._name}.{context.partitionId()}")
            return await append_rows(batches, self._request, sender, env)


class BuildWriter(_Writer):
    """Each task writes the SSTs of a partition that is sorted by key; the commit is the first manifest."""

    def __init__(self, request: "LoadRequest", letters: DeadLetterFolder | None = None) -> None:
        super().__init__(request, letters)
        self._request = request
        self._stamp = run_async(self._begin)

    @message_only()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the SSTs of one partition."""
        request = self._request
        rules = RowRules(stamp=self._stamp, ttl_ms=request.ttl_ms, codec=request.codec)
        plan = LoadTaskPlan(where=request.where, rules=rules, sst=request.sst, sst_bytes=request.sst_bytes)
        letters = self.dead_letter_collector()
        batches = map(self._pick, letters.storable(iterator))

        async def main(env: Env) -> LoadTaskResult:
            return await run_load_task(batches, plan, env)

        part = run_async(main)
        return TaskCommitMessage(rows=part.rows, part=encode_result(part), dead_letters=tuple(letters.names))

    @message_only()
    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Create the database.

        Raises:
            InvalidRequestError: partitions share a key.
            InvalidDbState: another process has created one meanwhile.
        """
        parts = [decode_result(message.part) for message in messages if isinstance(message, TaskCommitMessage)]
        run_async(partial(self._commit, parts))
        super().commit(messages)

    async def _begin(self, env: Env) -> LoadStamp:
        stores = self._request.where.connect(env, Metrics(), component="pipeline", is_bounded=True)
        try:
            return (await NewDatabase.open(stores.main, self._request.where.root, env, Metrics())).stamp
        finally:
            await stores.aclose()

    async def _commit(self, parts: list[LoadTaskResult], env: Env) -> Manifest:
        where = self._request.where
        stores = where.connect(env, Metrics(), component="pipeline")
        try:
            target = await NewDatabase.open(
                stores.main,
                where.root,
                env,
                Metrics(),
                stamp=self._stamp,
                manifest_write_version=where.manifest_write_version,
            )
            return await target.commit([sst for part in parts for sst in part.ssts])
        finally:
            await stores.aclose()
