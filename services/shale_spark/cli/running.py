"""How a command of ``shale spark`` begins and ends: settings, a session, one line for what went wrong.

The work runs in a thread, because everything in Spark's Python interface blocks.  Ctrl-C and ``--timeout`` interrupt
what executors do, and wait ``LEAVING_S`` for the work to give back what it holds: a writer's place, a claim, a lease.
A second Ctrl-C does not wait.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from shale.errors import InvalidRequestError, LatestRecordMissing, OutOfTime
from shale.service.exit_codes import worst_error
from shale.service.leaving import leave
from shale_cli.session import be_verbose, command_line, guarded, patience_s, patient_options
from shale_spark.cli.java_log import JavaLog
from shale_spark.cli.options import pairs
from shale_spark.cli.progress import Stage, active_stages, watching
from shale_spark.extra import require_extra
from shale_spark.failures import SparkGaveUp, translated

if TYPE_CHECKING:
    import typer
    from pyspark.sql import SparkSession

    from shale.engine.where import Where
    from shale.service.settings import DaemonSettings
    from shale.service.spark_section import SparkSettings
    from shale_cli.output import Output
    from shale_cli.session import GlobalOptions
    from shale_spark.settings import SparkCommandSettings

S = TypeVar("S", bound="DaemonSettings")

LEAVING_S = 20.0
_AGAIN_S = 0.5
TEMPFAIL = 75
"""``--timeout``: the work had not ended; docs/operations.md 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCommand:
    """One command's view of the world."""

    spark: "SparkSession"
    where: "Where"
    options: "GlobalOptions"
    on_interrupt: Callable[[Callable[[], object]], object]
    """Takes functions that end the work besides Spark's jobs; called from another thread, more than once."""

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
    """The session, once it is there; whether it was made here, and where its Java then says things."""

    is_verbose: bool
    spark: "SparkSession | None" = None
    is_own: bool = False
    log: JavaLog | None = None
    enders: list[Callable[[], object]] = field(default_factory=list)

    def start(self, settings: "SparkSettings", master: str | None, conf: Mapping[str, str]) -> "SparkSession":
        """The session; blocks."""
        from shale_spark.session import current_session, spark_session

        self.is_own = current_session() is None
        if self.is_own and not self.is_verbose:
            self.log = JavaLog.make()
        with nullcontext() if self.log is None else self.log.taken():
            self.spark = spark_session(settings, master=master, conf=conf)
        return self.spark

    def stages(self) -> Sequence[Stage]:
        """What runs."""
        return () if self.spark is None else active_stages(self.spark)

    def interrupt(self) -> None:
        """End what executors do, and the work around it; blocks, and may be repeated."""
        for end in self.enders:
            with suppress(RuntimeError):  # it has ended
                end()
        if self.spark is not None:
            with suppress(Exception):  # a session that is lost runs nothing
                self.spark.interruptAll()

    def close(self, *, keeps_log: bool) -> None:
        """Stop the session, if it was made here; its log stays if somebody was told of it."""
        if self.log is not None:
            self.log.give_back()
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
        shows_stages: whether Spark's stages are what one wants to see meanwhile; a command may have something better.
    """
    options: GlobalOptions = context.obj
    leave(guarded(options, lambda: _to_the_end(options, master, conf, work, shows_stages), timed_out=TEMPFAIL))


def _to_the_end(
    options: "GlobalOptions", master: str | None, conf: Sequence[str] | None, work: Work, shows_stages: bool
) -> int:
    require_extra()
    properties = {"spark.log.level": "INFO" if options.verbose else "WARN", **pairs(conf, "--conf")}
    timeout_s = patience_s(options)
    be_verbose(options)
    settings, where = _place(options)
    running = _Running(is_verbose=options.verbose)

    def whole() -> int | None:
        with _told(options, running):
            spark = running.start(settings.spark.settings(), master, properties)
            return work(SparkCommand(spark=spark, where=where, options=options, on_interrupt=running.enders.append))

    is_named = False
    try:
        code = anyio.run(_bounded, whole, running, timeout_s, options.output if shows_stages else None) or 0
    except SparkGaveUp:
        is_named = True
        raise
    finally:
        running.close(keeps_log=is_named)
    sys.stdout.flush()
    return code


@contextmanager
def _told(options: "GlobalOptions", running: _Running) -> Iterator[None]:
    """Errors as a person wants to read them.

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
        found = translated(error)
        if isinstance(found, SparkGaveUp) and running.log is not None:
            raise SparkGaveUp(f"{found}; Spark's own log: {running.log.path}") from error
        raise found from error


async def _bounded(
    whole: Callable[[], int | None], running: _Running, timeout_s: float | None, shown: "Output | None"
) -> int | None:
    with anyio.move_on_after(timeout_s):
        try:
            async with nullcontext() if shown is None else watching(running.stages, shown):
                return await _in_thread(whole, running)
        except BaseExceptionGroup as group:
            raise worst_error(group) from group
    raise OutOfTime(f"not done after {timeout_s:g} s; what had been written is either committed or garbage")


async def _in_thread(whole: Callable[[], int | None], running: _Running) -> int | None:
    """Do the work; when cancelled, interrupt it until it has ended, or for ``LEAVING_S``.

    Before there is a session it holds nothing, and is left alone: Java starts for many seconds, and ends with us.
    """
    ended = anyio.Event()
    results: list[int | None] = []
    failures: list[BaseException] = []
    thread = anyio.CancelScope(shield=True)

    async def work() -> None:
        with thread:
            try:
                results.append(await anyio.to_thread.run_sync(whole, abandon_on_cancel=True))
            except Exception as error:  # noqa: BLE001 - raised below, or a consequence of the interrupt
                failures.append(error)
            finally:
                ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, name="work")
        try:
            await ended.wait()
        finally:
            with anyio.move_on_after(LEAVING_S if running.spark is not None else 0, shield=True):
                while not ended.is_set():
                    # Again and again: Spark forgets an interrupt that comes before its job.
                    await anyio.to_thread.run_sync(running.interrupt, abandon_on_cancel=True)
                    with anyio.move_on_after(_AGAIN_S):
                        await ended.wait()
            thread.cancel()
    if failures:
        raise failures[0]
    return results[0]


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
    return settings, Where(
        location.store_url,
        location.path,
        settings.database.wal_store_url(),
        patient_options(settings),
        settings.block_transformer(),
    )
