"""The query of ``shale spark changes`` is started again only if Spark's Python worker was late."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from shale_spark.cli.changes import LinePrinter, run_query

LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


class Queries:
    """Starts queries that fail with these messages, one after the other; the last one ends well."""

    def __init__(self, *failures: str, progress: Any = None, prints: bool = False) -> None:
        self.printer = LinePrinter(Output(Format.JSONL, KeyEncoding.UTF8))
        self.printer.has_begun = prints
        self._failures = list(failures)
        self._progress = progress
        self.started = self.stopped = 0

    def start(self) -> Any:
        self.started += 1
        failure = self._failures.pop(0) if self._failures else None

        def await_termination() -> None:
            if failure is not None:
                raise StreamingQueryException(failure)

        return SimpleNamespace(awaitTermination=await_termination, stop=self._stop, lastProgress=self._progress)

    def _stop(self) -> None:
        self.stopped += 1


def test_a_worker_that_is_late_gets_another_chance() -> None:
    queries = Queries(LATE, LATE)
    run_query(queries.start, queries.printer)
    assert (queries.started, queries.stopped) == (3, 3)


@pytest.mark.parametrize(
    "queries",
    [Queries("[STREAM_FAILED] a WAL file is lost"), Queries(LATE, progress={"batchId": 3}), Queries(LATE, prints=True)],
    ids=["other", "under way", "in its first batch"],
)
def test_other_failures_end_the_command(queries: Queries) -> None:
    with pytest.raises(StreamingQueryException):
        run_query(queries.start, queries.printer)
    assert (queries.started, queries.stopped) == (1, 1)


def test_a_worker_that_is_always_late_fails_the_command() -> None:
    queries = Queries(*[LATE] * 9)
    with pytest.raises(StreamingQueryException, match="connect back"):
        run_query(queries.start, queries.printer)
    assert (queries.started, queries.stopped) == (3, 3)
