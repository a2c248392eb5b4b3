"""What ``df.write.format("shale")`` does: rows through a writer daemon, or a new database around sorted SSTs.

Spark makes one of these writers in the driver, runs its copies in tasks, and commits in the driver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from shale.engine.bulk_load import LoadStamp
from shale.engine.load_target import NewDatabase
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from shale_spark.load.append import append_rows
from shale_spark.load.batches import picked
from shale_spark.load.dead_letters import DeadLetters, SetAside
from shale_spark.load.part import decode_part, encode_part, run_part
from shale_spark.load.rules import Part, PartPlan, RowRules
from shale_spark.load.sender import BatchSender
from shale_spark.load.write_options import AppendRequest, dead_letters_folder, write_request
from shale_spark.one_line import one_line
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from shale_spark.load.request import LoadRequest


@dataclass
class Written(WriterCommitMessage):
    """What a task tells: how many rows it sent, or the part that it built, and which dead letters are its own."""

    rows: int = 0
    part: bytes = b""
    dead_letters: tuple[str, ...] = ()


def make_writer(options: Mapping[str, str], *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer for these options.

    Raises:
        InvalidRequestError: the options are impossible, or existing rows are to be replaced.
        InvalidDbState: a database is to be built where there is one.
    """
    if overwrite:
        raise InvalidRequestError('rows of a database are not replaced as a whole: use .mode("append")')
    request, folder = write_request(options), dead_letters_folder(options)
    letters = None if folder is None else DeadLetters(folder=folder, write_id=str(Env.system().ids.ulid()))
    return AppendWriter(request, letters) if isinstance(request, AppendRequest) else BuildWriter(request, letters)


class _Writer(DataSourceArrowWriter):
    """What both ways of writing do with rows that cannot be stored."""

    def __init__(self, request: "AppendRequest | LoadRequest", letters: DeadLetters | None) -> None:
        self._pick = partial(picked, columns=request.columns, has_codec=request.codec is not None)
        self._codec = request.codec
        self._letters = letters

    def set_aside(self) -> SetAside:
        """What one task puts aside."""
        return SetAside(self._letters, self._codec, self._pick)

    @one_line()
    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Keep the dead letters of the attempts that count."""
        if self._letters is not None:
            written = [message for message in messages if isinstance(message, Written)]
            self._letters.keep(name for message in written for name in message.dead_letters)

    @one_line()
    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:  # noqa: ARG002 - the base class has it
        """Keep none: whoever writes again finds the same ones."""
        if self._letters is not None:
            self._letters.keep(())


class AppendWriter(_Writer):
    """Each task sends its rows in batches.  Of rows with one key in different partitions it is not said which wins."""

    def __init__(self, request: AppendRequest, letters: DeadLetters | None = None) -> None:
        super().__init__(request, letters)
        self._request = request
        self._name = str(Env.system().ids.ulid())

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one partition."""
        aside = self.set_aside()
        rows = run_async(partial(self._send, aside.possible(iterator)))
        return Written(rows=rows, dead_letters=tuple(aside.names))

    async def _send(self, batches: Iterator[pa.RecordBatch], env: Env) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "called in a task"
        async with self._request.endpoint.client() as client:
            sender = BatchSender(self._request.endpoint, client, env, name=f"{self._name}.{context.partitionId()}")
            return await append_rows(batches, self._request, sender, env)


class BuildWriter(_Writer):
    """Each task writes the SSTs of a partition that is sorted by key; the commit is the first manifest."""

    def __init__(self, request: "LoadRequest", letters: DeadLetters | None = None) -> None:
        super().__init__(request, letters)
        self._request = request
        self._stamp = run_async(self._begin)

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the SSTs of one partition."""
        request = self._request
        rules = RowRules(stamp=self._stamp, ttl_ms=request.ttl_ms, codec=request.codec)
        plan = PartPlan(where=request.where, rules=rules, sst=request.sst, sst_bytes=request.sst_bytes)
        aside = self.set_aside()
        batches = map(self._pick, aside.possible(iterator))

        async def main(env: Env) -> Part:
            return await run_part(batches, plan, env)

        part = run_async(main)
        return Written(rows=part.rows, part=encode_part(part), dead_letters=tuple(aside.names))

    @one_line()
    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Make the database.

        Raises:
            InvalidRequestError: partitions share a key.
            InvalidDbState: somebody else has made one meanwhile.
        """
        parts = [decode_part(message.part) for message in messages if isinstance(message, Written)]
        run_async(partial(self._commit, parts))
        super().commit(messages)

    async def _begin(self, env: Env) -> LoadStamp:
        stores = self._request.where.connect(env, Metrics(), component="pipeline")
        try:
            return (await NewDatabase.open(stores.main, self._request.where.root, env, Metrics())).stamp
        finally:
            await stores.aclose()

    async def _commit(self, parts: list[Part], env: Env) -> Manifest:
        where = self._request.where
        stores = where.connect(env, Metrics(), component="pipeline")
        try:
            target = await NewDatabase.open(stores.main, where.root, env, Metrics(), stamp=self._stamp)
            return await target.commit([sst for part in parts for sst in part.ssts])
        finally:
            await stores.aclose()
