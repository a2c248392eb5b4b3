"""The frame of a ``shale spark`` command: settings, a session, and errors as one line.

The work runs in a thread, because Spark's Python interface blocks.  Ctrl-C and ``--timeout`` interrupt the executors
and wait ``INTERRUPT_TIMEOUT_S`` for the work to release what it holds: a writer's epoch, a claim, a lease.  A second
Ctrl-C does not wait.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.errors import DeadlineExceeded, InvalidRequestError, LatestRecordMissing
from shale.service.exit_codes import worst_error
from shale.service.exit_process import exit_process
from shale_cli.framework.session import (
    command_line,
    command_store_options,
    configure_verbose_logging,
    parse_timeout,
    run_reporting_errors,
)
from shale_spark.blocking_call import BlockingCall, run_until
from shale_spark.cli.java_log import JavaLog
from shale_spark.cli.options import pairs
from shale_spark.cli.progress import StageProgress, active_stages, watching
from shale_spark.errors import SparkError, shale_error_of
from shale_spark.prerequisites import require_extra

if TYPE_CHECKING:
    import typer
    from pyspark.sql import SparkSession

    from shale.engine.location import DatabaseLocation
    from shale.service.config.settings import DaemonSettings
    from shale.service.config.spark_section import SparkSettings
    from shale_cli.framework.output.writer import Output
    from shale_cli.framework.session import GlobalOptions
    from shale_spark.session_conf import SparkCommandSettings

S = TypeVar("S", bound="DaemonSettings")

INTERRUPT_TIMEOUT_S = 20.0
TEMPFAIL = 75
"""The exit code after ``--timeout``; docs/reference/exit-codes.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCommand:
    """The context of one command."""

    spark: "SparkSession"
    where: "DatabaseLocation"
    options: "GlobalOptions"
    on_interrupt: Callable[[Callable[[], object]], object]
    """Registers functions that end work outside Spark jobs; they are called from another thread, more than once."""

    @property
    def output(self) -> "Output":
        """The writer of results."""
        return self.options.output

    def load(self, model: type[S]) -> S:
        """Load settings of another kind, from the same sources.

        Raises:
            SettingsError: with every mistake.
        """
        from shale.service.config.settings import load_settings

        return load_settings(model, command_line(self.options)).settings


Work = Callable[[SparkCommand], int | None]


@dataclass(slots=True)
class RunningSession:
    """The session, once it has started; whether it was started here, and the log of its Java."""

    is_verbose: bool
    spark: "SparkSession | None" = None
    is_own: bool = False
    log: JavaLog | None = None
    enders: list[Callable[[], object]] = field(default_factory=list)

    def start(self, settings: "SparkSettings", master: str | None, conf: Mapping[str, str]) -> "SparkSession":
        """Return the session; blocks."""
        from shale_spark.session import current_session, spark_session

        self.is_own = current_session() is None
        if self.is_own and not self.is_verbose:
            self.log = JavaLog.create()
        with nullcontext() if self.log is None else self.log.redirected():
            self.spark = spark_session(settings, master=master, conf=conf)
        return self.spark

    def stages(self) -> Sequence[StageProgress]:
        """Return the running stages."""
        return () if self.spark is None else active_stages(self.spark)

    def interrupt(self) -> None:
        """End the executors' tasks and the work around them; blocks, and may be repeated."""
        for end in self.enders:
            with suppress(RuntimeError):  # it has ended
                end()
        if self.spark is not None:
            with suppress(Exception):  # a session that is lost runs nothing
                self.spark.interruptAll()

    def close(self, *, keeps_log: bool) -> None:
        """Stop the session, if it was started here; its log stays if an error message named it."""
        if self.log is not None:
            self.log.restore()
        if self.is_own and self.spark is not None:
            self.spark.stop()
        if self.log is not None and not keeps_log:
            self.log.remove()


def run(
    context: "typer.Context",
    master: str | None,
    conf: Sequence[str] | None,
    work: Work,
    *,
    shows_stages: bool = True,
) -> None:
    """Do the work of a command and end the process with its code.

    Args:
        context: Typer's, with the global options.
        master: overrides the settings.
        conf: Spark properties as NAME=VALUE.
        work: the command itself.
        shows_stages: whether to show Spark's stages meanwhile; a command may show something better.
    """
    options: GlobalOptions = context.obj
    exit_process(
        run_reporting_errors(options, lambda: _run_work(options, master, conf, work, shows_stages), timed_out=TEMPFAIL)
    )


def _run_work(
    options: "GlobalOptions", master: str | None, conf: Sequence[str] | None, work: Work, shows_stages: bool
) -> int:
    require_extra()
    properties = {"spark.log.level": "INFO" if options.verbose else "WARN", **pairs(conf, "--conf")}
    timeout_s = parse_timeout(options)
    configure_verbose_logging(options)
    settings, where = _load_settings(options)
    running = RunningSession(is_verbose=options.verbose)

    def whole() -> int | None:
        with _readable_errors(options, running):
            spark = running.start(settings.spark.settings(), master, properties)
            return work(SparkCommand(spark=spark, where=where, options=options, on_interrupt=running.enders.append))

    is_named = False
    try:
        code = anyio.run(run_with_timeout, whole, running, timeout_s, options.output if shows_stages else None) or 0
    except SparkError:
        is_named = True
        raise
    finally:
        running.close(keeps_log=is_named)
    sys.stdout.flush()
    return code


@contextmanager
def _readable_errors(options: "GlobalOptions", running: RunningSession) -> Iterator[None]:
    """Raise errors that a person can read.

    Raises:
        ShaleError: in place of everything that Spark raises.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except LatestRecordMissing as error:
        if options.url is None or options.url in str(error):
            raise
        raise LatestRecordMissing(f"{options.url}: {error}") from error
    except (PySparkException, Py4JError, ConnectionError) as error:
        if options.verbose:
            sys.stderr.write(f"{error}\n")
        found = shale_error_of(error)
        if isinstance(found, SparkError) and running.log is not None:
            raise SparkError(f"{found}; Spark's own log: {running.log.path}") from error
        raise found from error


async def run_with_timeout(
    whole: Callable[[], int | None], running: RunningSession, timeout_s: float | None, shown: "Output | None"
) -> int | None:
    with anyio.move_on_after(timeout_s):
        try:
            async with nullcontext() if shown is None else watching(running.stages, shown):
                return await _run_in_thread(whole, running)
        except BaseExceptionGroup as group:
            raise worst_error(group) from group
    raise DeadlineExceeded(f"not done after {timeout_s:g} s; what had been written is either committed or garbage")


async def _run_in_thread(whole: Callable[[], int | None], running: RunningSession) -> int | None:
    """Do the work in a thread; when cancelled, interrupt it until it has ended, or for ``INTERRUPT_TIMEOUT_S``.

    Before there is a session the work holds nothing and is abandoned: Java starts for many seconds and ends with this
    process.
    """
    call = BlockingCall(whole)

    async def stop() -> None:
        with anyio.move_on_after(INTERRUPT_TIMEOUT_S if running.spark is not None else 0):
            await call.interrupt_until_ended(running.interrupt)

    await run_until(call, call.ended.wait, stop)
    return call.result()


def _load_settings(options: "GlobalOptions") -> "tuple[SparkCommandSettings, DatabaseLocation]":
    """Return the settings, and the location of the database.

    Raises:
        InvalidRequestError: only a store was named.
    """
    from shale.engine.location import DatabaseLocation
    from shale.service.config.settings import load_settings
    from shale_spark.session_conf import SparkCommandSettings

    settings = load_settings(SparkCommandSettings, command_line(options)).settings
    location = settings.database.location()
    if not location.path:
        raise InvalidRequestError(f"{location.store_url}: names a store, not a database in it: add --path")
    return settings, DatabaseLocation(
        location.store_url,
        location.path,
        settings.database.wal_store_url(),
        command_store_options(settings),
        settings.block_transformer(),
        settings.manifest.write_version,
    )
