"""The session of a command: settings, store access, error messages and exit codes."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shale.core.lazy_dataclass import dataclass
from shale.core.url_secrets import without_url_secrets
from shale.telemetry.printable import printable
from shale_cli.framework.output.writer import Output

if TYPE_CHECKING:
    import typer

    from shale.admin.admin import Admin
    from shale.env import Env
    from shale.format.blocks.transform import BlockTransformer
    from shale.format.sst.filter_policy import PrefixExtractor
    from shale.service.config.named_database import NamedDatabase
    from shale.service.config.sections import StoreSection
    from shale.service.config.settings import DaemonSettings
    from shale.store.location import Location
    from shale.store.options import StoreOptions
    from shale.store.port import ObjectStore
    from shale.store.retry import RetryingStore
    from shale.types import ManifestVersion

_CONNECT_OPTIONS = ("wal_store", "store_options", "block_transformer", "manifest_write_version")
RETRIES_MAX = 5
"""Store retries of a command, which fails after some seconds, while a daemon keeps retrying."""
REQUEST_LIMIT_S = 60.0
"""How long one request may take with its retries.  A store that has answered nothing is given up after 15 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The values of the global options."""

    url: str | None = None
    store: str | None = None
    path: str | None = None
    wal_store: str | None = None
    config: tuple[str, ...] = ()
    timeout: str | None = None
    verbose: bool = False
    output: Output

    @property
    def names_database(self) -> bool:
        """Whether the command line names the database."""
        return self.url is not None or self.store is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSession:
    """The environment of one command: the database, its store options, and the output."""

    location: "Location"
    alias: str = "db"
    """The label of the database; by default its path."""
    wal_store: str | None = None
    store_options: "StoreOptions"
    block_transformer: "BlockTransformer | None" = None
    segment_extractor: "PrefixExtractor | None" = None
    merge_operator: str | None = None
    manifest_write_version: "ManifestVersion" = 2
    backups_url: str | None = None
    backup_store_options: "StoreOptions | None" = None
    """``None``: as those of the store of the database."""
    env: "Env"
    output: Output

    @property
    def path(self) -> str:
        """The path of the database in its store.

        Raises:
            InvalidRequestError: only a store was given.
        """
        from shale.errors import InvalidRequestError

        if not self.location.path:
            raise InvalidRequestError(f"{self.location.store_url}: this is a store, not a database: add --path")
        return self.location.path

    @property
    def database_args(self) -> dict[str, Any]:
        """The arguments of ``Db.open`` and ``DbReader.open`` that name the database; raises like ``path``."""
        return {
            "store": self.location.store_url,
            "path": self.path,
            **{name: getattr(self, name) for name in _CONNECT_OPTIONS},
        }

    @property
    def writer_args(self) -> dict[str, Any]:
        """The arguments of ``Db.open`` for a command that writes; includes ``database_args``."""
        return {
            **self.database_args,
            "segment_extractor": self.segment_extractor,
            "merge_operator": self.merge_operator,
        }

    def admin(self) -> "Admin":
        """Return the administration of the database, to be used with ``async with``; raises like ``path``."""
        from shale.admin.admin import Admin

        return Admin(**self.database_args, env=self.env)

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator["RetryingStore"]:
        """Open the store itself, for commands that do not use the engine."""
        from shale.store.connect import connect

        store = connect(self.location.store_url, self.env, None, self.store_options)
        try:
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def open_wal_store(self, main: "ObjectStore") -> AsyncIterator["ObjectStore"]:
        """Open the store of the WAL, which is ``main`` unless it is separate."""
        from shale.store.connect import connect

        if self.wal_store is None:
            yield main
            return
        store = connect(self.wal_store, self.env, None, self.store_options)
        try:
            yield store
        finally:
            await store.aclose()


Work = Callable[[CliSession], Awaitable[int | None]]


def run(context: "typer.Context", work: Work, *, timed_out: int | None = None) -> None:
    """Run the work of a command and exit with its code: 0, the result of ``work``, or the code of the error.

    ``timed_out``: the exit code after ``--timeout``; by default that of an unreachable store.
    """
    raise SystemExit(execute(context.obj, work, timed_out=timed_out))


def execute(options: GlobalOptions, work: Work, *, timed_out: int | None = None) -> int:
    """Run ``work``; print one line per error of the library, and return its code (docs/reference/exit-codes.md)."""
    return run_reporting_errors(options, lambda: _load_and_run(options, work), timed_out=timed_out)


def run_reporting_errors(options: GlobalOptions, work: Callable[[], int], *, timed_out: int | None = None) -> int:
    """Run work that needs no database; handle errors like ``execute``."""
    from shale.errors import DeadlineExceeded, ShaleError
    from shale.service.exit_codes import ExitCode, command_exit_code, worst_error

    try:
        return work()
    except KeyboardInterrupt:
        print_error("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        discard_output()  # the reader of the pipe has closed it
        return ExitCode.ERROR
    except (ShaleError, BaseExceptionGroup) as error:
        worst = worst_error(error)
        if not isinstance(worst, ShaleError):
            raise
        for line in getattr(worst, "problems", (str(worst),)):
            print_error(line)
        if timed_out is not None and isinstance(worst, DeadlineExceeded):
            return timed_out
        return _settings_code(options, worst) or command_exit_code(worst)


def _load_and_run(options: GlobalOptions, work: Work) -> int:
    import anyio

    session, timeout_s = _load(options)
    code = anyio.run(_bounded, session, work, timeout_s) or 0
    sys.stdout.flush()
    return code


def discard_output() -> None:
    """Redirect stdout to the null device, so that the interpreter does not fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(line: str) -> None:
    """Print one line to stderr, without the passwords of its URLs; names in it may come from others."""
    sys.stderr.write(f"shale: {printable(without_url_secrets(line))}\n")


async def _bounded(session: CliSession, work: Work, timeout_s: float | None) -> int | None:
    import anyio

    from shale.errors import DeadlineExceeded, NotFoundError

    with anyio.move_on_after(timeout_s):
        try:
            return await work(session)
        except NotFoundError as error:
            # Add the URL, because a wrong URL is the usual reason, and the library knows only the path.
            if session.location.url in str(error):
                raise
            raise NotFoundError(f"{session.location.url}: {error}") from error
    raise DeadlineExceeded(f"{session.location.url}: timed out after {timeout_s:g} s")


def _load(options: GlobalOptions) -> tuple[CliSession, float | None]:
    """Load the settings as a daemon would, from the command line, the environment and files."""
    from shale.service.config.named_database import named_database

    timeout_s = parse_timeout(options)
    configure_verbose_logging(options)
    found = named_database(_database_options(options), os.environ) if not options.config else None
    return _default_session(found, options.output) if found else _configured_session(options), timeout_s


def _default_session(database: "NamedDatabase", output: Output) -> CliSession:
    """Return the session of a database without other settings, whose classes are not imported."""
    from shale.env import Env
    from shale.store.options import StoreOptions

    return CliSession(
        location=database.location,
        alias=database.label,
        wal_store=database.wal_store,
        store_options=limited(StoreOptions()),
        env=Env.system(),
        output=output,
    )


def _configured_session(options: GlobalOptions) -> CliSession:
    from shale.env import Env
    from shale.service.config.secret_url import url_text
    from shale.service.config.settings import load_settings
    from shale_cli.framework.settings import CommandSettings

    settings = load_settings(CommandSettings, command_line(options)).settings
    segments = settings.segment_extractor
    return CliSession(
        location=settings.database.location(),
        alias=settings.database.label(),
        wal_store=settings.database.wal_store_url(),
        store_options=command_store_options(settings),
        block_transformer=settings.block_transformer(),
        segment_extractor=None if segments is None else segments.extractor(),
        merge_operator=settings.merge_operator,
        manifest_write_version=settings.manifest.write_version,
        backups_url=url_text(settings.backup.url),
        backup_store_options=_backup_store_options(settings.backup.store),
        env=Env.system(),
        output=options.output,
    )


def parse_timeout(options: GlobalOptions) -> float | None:
    """Parse ``--timeout``.

    Raises:
        InvalidRequestError: the value is not a duration.
    """
    from shale.core.settings_values import parse_duration_s

    return None if options.timeout is None else parse_duration_s(options.timeout, name="--timeout")


def configure_verbose_logging(options: GlobalOptions) -> None:
    """Enable logging if ``--verbose`` is given."""
    if options.verbose:
        from shale.telemetry.log_output import configure_logging

        configure_logging(level="debug", format_="auto", full_keys=False)


def _backup_store_options(section: "StoreSection | None") -> "StoreOptions | None":
    from shale.service.store_startup import store_options

    return None if section is None else limited(store_options(section))


def command_store_options(settings: "DaemonSettings") -> "StoreOptions":
    """Return the store options of the settings, with the retry limit of commands."""
    from shale.service.store_startup import store_options

    return limited(store_options(settings.store))


def limited(chosen: "StoreOptions") -> "StoreOptions":
    """Return store options with the retries and limits of commands."""
    policy = replace(chosen.retry, retries_max=RETRIES_MAX, fail_fast_auth=True, timeout_s=REQUEST_LIMIT_S)
    return replace(chosen, retry=policy)


def command_line(options: GlobalOptions) -> list[str]:
    """Return the global options as the command line of a daemon; missing ones come from environment and files."""
    pairs = [f"--{name.replace('_', '-')}={value}" for name, value in _database_options(options).items()]
    return pairs + [f"--config={file}" for file in options.config]


def _database_options(options: GlobalOptions) -> dict[str, str]:
    """Return the given options that name the database."""
    named = {"url": options.url, "store": options.store, "path": options.path, "wal_store": options.wal_store}
    return {name: value for name, value in named.items() if value is not None}


def _settings_code(options: GlobalOptions, error: BaseException) -> int | None:
    """Return the exit code of invalid settings: 2 if the command line is wrong, otherwise 78."""
    from shale.service.config.settings_error import SettingsError
    from shale.service.exit_codes import ExitCode

    if not isinstance(error, SettingsError):
        return None
    is_unnamed = not options.names_database and not any(name in os.environ for name in ("SHALE_URL", "SHALE_STORE"))
    on_the_line = all("option --" in problem for problem in error.problems)
    return ExitCode.USAGE if on_the_line or is_unnamed else ExitCode.CONFIG
