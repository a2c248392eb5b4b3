"""What a command works with, and how it ends: settings, the outside world, one line for what went wrong."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shale_cli.output import Output

if TYPE_CHECKING:
    import typer

    from shale.env import Env
    from shale.format.bloom import PrefixExtractor
    from shale.format.transform import BlockTransformer
    from shale.service.settings import DaemonSettings
    from shale.store.location import Location
    from shale.store.options import StoreOptions
    from shale.store.port import ObjectStore
    from shale.store.retry import RetryingStore

RETRIES_MAX = 5
"""A command gives up after some seconds and says why, where a daemon insists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """What was said before the noun."""

    url: str | None = None
    store: str | None = None
    path: str | None = None
    wal_store: str | None = None
    config: tuple[str, ...] = ()
    timeout: str | None = None
    verbose: bool = False
    output: Output

    @property
    def names_a_place(self) -> bool:
        """Whether the command line says where the database is."""
        return self.url is not None or self.store is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One command's view of the world."""

    location: "Location"
    alias: str = "db"
    """What the settings call the database; its path if they call it nothing."""
    wal_store: str | None = None
    store_options: "StoreOptions"
    block_transformer: "BlockTransformer | None" = None
    segment_extractor: "PrefixExtractor | None" = None
    merge_operator: str | None = None
    env: "Env"
    output: Output

    @property
    def path(self) -> str:
        """The database's path in its store.

        Raises:
            InvalidRequestError: only a store was named.
        """
        from shale.errors import InvalidRequestError

        if not self.location.path:
            raise InvalidRequestError(f"{self.location.store_url}: names a store, not a database in it: add --path")
        return self.location.path

    @property
    def place(self) -> dict[str, Any]:
        """The arguments that name the database to ``Db.open`` and ``DbReader.open``; raises like ``path``."""
        return {
            "store": self.location.store_url,
            "path": self.path,
            "wal_store": self.wal_store,
            "store_options": self.store_options,
            "block_transformer": self.block_transformer,
        }

    @property
    def writing(self) -> dict[str, Any]:
        """The arguments of ``Db.open`` that the database's own writer has; ``place`` included."""
        return {
            **self.place,
            "segment_extractor": self.segment_extractor,
            "merge_operator": self.merge_operator,
        }

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator["RetryingStore"]:
        """The store itself, for commands below the engine."""
        from shale.store.connect import connect

        store = connect(self.location.store_url, self.env, None, self.store_options)
        try:
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def open_wal_store(self, main: "ObjectStore") -> AsyncIterator["ObjectStore"]:
        """Where the WAL lives: ``main``, unless another store was named for it."""
        from shale.store.connect import connect

        if self.wal_store is None:
            yield main
            return
        store = connect(self.wal_store, self.env, None, self.store_options)
        try:
            yield store
        finally:
            await store.aclose()


Work = Callable[[Session], Awaitable[int | None]]


def run(context: "typer.Context", work: Work, *, timed_out: int | None = None) -> None:
    """Do the work of a command and end the process with its code: 0, or what ``work`` returned, or the error's.

    ``timed_out`` is the code for ``--timeout`` where it does not mean that the store is away.
    """
    raise SystemExit(execute(context.obj, work, timed_out=timed_out))


def execute(options: GlobalOptions, work: Work, *, timed_out: int | None = None) -> int:
    """Run ``work``; every error of ours becomes one line on stderr and the code of docs/operations.md 12."""
    return guarded(options, lambda: _work_to_the_end(options, work), timed_out=timed_out)


def guarded(options: GlobalOptions, work: Callable[[], int], *, timed_out: int | None = None) -> int:
    """Like ``execute``, for work that needs no database."""
    from shale.errors import OutOfTime, ShaleError
    from shale.service.exit_codes import ExitCode, command_exit_code, worst_error

    try:
        return work()
    except KeyboardInterrupt:
        complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        discard_output()  # whoever read it has seen enough
        return ExitCode.ERROR
    except (ShaleError, BaseExceptionGroup) as error:
        worst = worst_error(error)
        if not isinstance(worst, ShaleError):
            raise
        for line in getattr(worst, "problems", (str(worst),)):
            complain(line)
        if timed_out is not None and isinstance(worst, OutOfTime):
            return timed_out
        return _settings_code(options, worst) or command_exit_code(worst)


def _work_to_the_end(options: GlobalOptions, work: Work) -> int:
    import anyio

    session, timeout_s = _load(options)
    code = anyio.run(_bounded, session, work, timeout_s) or 0
    sys.stdout.flush()
    return code


def discard_output() -> None:
    """What is left of it cannot be written, and the interpreter must not try to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(line: str) -> None:
    """One line for people, on stderr."""
    sys.stderr.write(f"shale: {line}\n")


async def _bounded(session: Session, work: Work, timeout_s: float | None) -> int | None:
    import anyio

    from shale.errors import NotFoundError, OutOfTime

    with anyio.move_on_after(timeout_s):
        try:
            return await work(session)
        except NotFoundError as error:
            # The library knows the path at most, and a wrong URL is the usual reason.
            if session.location.url in str(error):
                raise
            raise NotFoundError(f"{session.location.url}: {error}") from error
    raise OutOfTime(f"{session.location.url}: not done after {timeout_s:g} s")


def _load(options: GlobalOptions) -> tuple[Session, float | None]:
    """Read settings as a daemon would, from the command line, the environment and files."""
    from shale.env import Env
    from shale.service.settings import load
    from shale_cli.settings import CommandSettings

    timeout_s = patience_s(options)
    be_verbose(options)
    settings = load(CommandSettings, command_line(options)).settings
    segments = settings.segment_extractor
    return (
        Session(
            location=settings.database.location(),
            alias=settings.database.label(),
            wal_store=settings.database.wal_store_url(),
            store_options=patient_options(settings),
            block_transformer=settings.block_transformer(),
            segment_extractor=None if segments is None else segments.extractor(),
            merge_operator=settings.merge_operator,
            env=Env.system(),
            output=options.output,
        ),
        timeout_s,
    )


def patience_s(options: GlobalOptions) -> float | None:
    """What ``--timeout`` says.

    Raises:
        InvalidRequestError: no duration.
    """
    from shale.engine.settings_values import parse_duration_s

    return None if options.timeout is None else parse_duration_s(options.timeout, name="--timeout")


def be_verbose(options: GlobalOptions) -> None:
    """Write log lines if ``--verbose`` asks for them."""
    if options.verbose:
        from shale.telemetry.log_output import configure_logging

        configure_logging(level="debug", format_="auto", full_keys=False)


def patient_options(settings: "DaemonSettings") -> "StoreOptions":
    """How a command reaches the store: as the settings say, but it gives up after a while."""
    from shale.service.store_start import store_options

    chosen = store_options(settings.store)
    return replace(chosen, retry=replace(chosen.retry, retries_max=RETRIES_MAX, fail_fast_auth=True))


def command_line(options: GlobalOptions) -> list[str]:
    """The global options as a daemon takes them: what was not said is left to environment and files, there as here."""
    named = {
        "--url": options.url,
        "--store": options.store,
        "--path": options.path,
        "--wal-store": options.wal_store,
    }
    pairs = [f"{name}={value}" for name, value in named.items() if value is not None]
    return pairs + [f"--config={file}" for file in options.config]


def _settings_code(options: GlobalOptions, error: BaseException) -> int | None:
    """Settings are the configuration's fault (78), unless the command line is to blame (2)."""
    from shale.service.exit_codes import ExitCode
    from shale.service.settings import SettingsError

    if not isinstance(error, SettingsError):
        return None
    nowhere = not options.names_a_place and not any(name in os.environ for name in ("SHALE_URL", "SHALE_STORE"))
    on_the_line = all("option --" in problem for problem in error.problems)
    return ExitCode.USAGE if on_the_line or nowhere else ExitCode.CONFIG
