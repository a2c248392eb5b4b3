"""How a command of ``shale spark`` begins and ends: settings, a session, one line for what went wrong.

The work runs in a thread, because everything in Spark's Python interface blocks; so Ctrl-C and ``--timeout`` end it at
any moment, and what executors still do is interrupted.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from shale.errors import InvalidRequestError, LatestRecordMissing, OutOfTime
from shale.service.leaving import leave
from shale_cli.session import be_verbose, command_line, guarded, patience_s, patient_options
from shale_spark.cli.options import pairs
from shale_spark.extra import require_extra
from shale_spark.failures import translated

if TYPE_CHECKING:
    import typer
    from pyspark.sql import SparkSession

    from shale.engine.where import Where
    from shale.service.settings import DaemonSettings
    from shale_cli.output import Output
    from shale_cli.session import GlobalOptions
    from shale_spark.settings import SparkCommandSettings

S = TypeVar("S", bound="DaemonSettings")

TEMPFAIL = 75
"""``--timeout``: the work had not ended; docs/operations.md 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCommand:
    """One command's view of the world."""

    spark: "SparkSession"
    where: "Where"
    options: "GlobalOptions"

    @property
    def output(self) -> "Output":
        """Where results go."""
        return self.options.output

    def load(self, model: type[S]) -> S:
        """Settings of another kind, from the same places.

        Raises:
            SettingsError: with every mistake.
        """
        from shale.service.settings import load

        return load(model, command_line(self.options)).settings


Work = Callable[[SparkCommand], int | None]


@dataclass(slots=True)
class _Running:
    """The session, once it is there, and whether it was made here."""

    spark: "SparkSession | None" = None
    is_own: bool = False


def run(context: "typer.Context", master: str | None, conf: Sequence[str] | None, work: Work) -> None:
    """Do the work of a command and end the process with its code."""
    options: GlobalOptions = context.obj
    leave(guarded(options, lambda: _to_the_end(options, master, conf, work), timed_out=TEMPFAIL))


def _to_the_end(options: "GlobalOptions", master: str | None, conf: Sequence[str] | None, work: Work) -> int:
    require_extra()
    given = pairs(conf, "--conf")
    timeout_s = patience_s(options)
    be_verbose(options)
    settings, where = _place(options)
    properties = _manners(options) | given
    running = _Running()

    def whole() -> int | None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from shale_spark.session import spark_session

        running.is_own = not _has_session()
        running.spark = spark_session(settings.spark.settings(), master=master, conf=properties)
        command = SparkCommand(spark=running.spark, where=where, options=options)
        try:
            return work(command)
        except LatestRecordMissing as error:
            if options.url is None or options.url in str(error):
                raise
            raise LatestRecordMissing(f"{options.url}: {error}") from error
        except (PySparkException, Py4JError, ConnectionError) as error:
            if options.verbose:
                sys.stderr.write(f"{error}\n")
            raise translated(error) from error

    try:
        code = anyio.run(_bounded, whole, running, timeout_s) or 0
    finally:
        if running.is_own and running.spark is not None:
            running.spark.stop()
    sys.stdout.flush()
    return code


async def _bounded(whole: Callable[[], int | None], running: _Running, timeout_s: float | None) -> int | None:
    with anyio.move_on_after(timeout_s):
        try:
            return await anyio.to_thread.run_sync(whole, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            if running.spark is not None:
                running.spark.interruptAll()
            raise
    raise OutOfTime(f"not done after {timeout_s:g} s; what had been written is either committed or garbage")


def _place(options: "GlobalOptions") -> "tuple[SparkCommandSettings, Where]":
    """The settings, and where the database is.

    Raises:
        InvalidRequestError: only a store was named.
    """
    from shale.engine.where import Where
    from shale.service.settings import load
    from shale_spark.settings import SparkCommandSettings

    settings = load(SparkCommandSettings, command_line(options)).settings
    location = settings.database.location()
    if not location.path:
        raise InvalidRequestError(f"{location.store_url}: names a store, not a database in it: add --path")
    return settings, Where(location.store_url, location.path, None, patient_options(settings))


def _manners(options: "GlobalOptions") -> dict[str, str]:
    """Properties for somebody who watches: a bar on a terminal, and no more of Spark's log than was asked for."""
    watched = sys.stderr.isatty() and not options.output.quiet
    return {
        "spark.ui.showConsoleProgress": str(watched).lower(),
        "spark.log.level": "INFO" if options.verbose else "ERROR",
    }


def _has_session() -> bool:
    from shale_spark.session import current_session

    return current_session() is not None
