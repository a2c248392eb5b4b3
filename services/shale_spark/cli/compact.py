"""``shale spark compact``: one compaction on Spark, submitted and waited for, or a permanent worker."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import Conf, Master, pairs

if TYPE_CHECKING:
    from shale.compaction.requests import CompactionRequest
    from shale.compaction.status import CompactionInfo
    from shale_cli.framework.output.writer import Output
    from shale_cli.framework.session import GlobalOptions
    from shale_compactor.worker.settings import WorkerSettings
    from shale_spark.compaction.worker import SparkWorkerOptions

POLL_INTERVAL_S = 1.0
T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = "shale spark compact --full -u s3://bucket/db  |  shale spark compact --work --master spark://host:7077"
    app.command("compact", epilog=f"Examples:  {examples}")(compact)


def compact(
    context: typer.Context,
    *,
    full: Annotated[bool, typer.Option("--full", help="All runs of every tree, or of --segment.")] = False,
    sources: Annotated[str | None, typer.Option(help="Runs and L0s of one tree: SR3,SR2 or 01J…,SR3.")] = None,
    destination: Annotated[int | None, typer.Option(min=0, help="The run to write.")] = None,
    segment: Annotated[str | None, typer.Option(help="The segment's prefix, in the key format.")] = None,
    request: Annotated[str | None, typer.Option(help="The request as JSON (docs/how-to/compact-manually.md).")] = None,
    ranges: Annotated[int | None, typer.Option(min=1, help="Key ranges, each a task; default: one per core.")] = None,
    work: Annotated[bool, typer.Option("--work", help="Run a worker until stopped; submit nothing.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Submit a compaction, execute it on Spark once a coordinator has scheduled it, and wait for its end.

    A coordinator has to run: `shale compactor --no-embedded-worker`, or SlateDB's.  Exit code 4 if it failed.
    """
    said = {"full": full, "sources": sources, "destination": destination, "segment": segment, "request": request}
    # Check the request first, because Java needs seconds to start.
    chosen = _run_guarded(context.obj, partial(_request, context.obj.output, said, is_work=work))
    if chosen is None:
        _become_worker(context.obj, master, conf, ranges)

    def compact_once(command: SparkCommand) -> int:
        from shale.env import Env
        from shale.service.exit_codes import ExitCode
        from shale_cli.commands.compaction.progress import show_progress
        from shale_cli.framework.session import print_error
        from shale_compactor.worker.settings import WorkerSettings
        from shale_spark.compaction.worker import compact as compact_rows

        worker_options = _worker_options(command.load(WorkerSettings), ranges)
        with show_progress(command.output, Env.system().clock) as on_progress:
            ended = compact_rows(
                command.spark,
                command.where,
                chosen,
                worker_options=worker_options,
                on_progress=on_progress,
                on_started=command.on_interrupt,
            )
        _show(command.output, ended)
        failed = [info for info in ended if info.error is not None]
        for info in failed:
            print_error(f"compaction {info.id}: {info.error}")
        return ExitCode.NEGATIVE if failed else ExitCode.OK

    run(context, master, conf, compact_once, shows_stages=False)


def _run_guarded(options: "GlobalOptions", work: Callable[[], T]) -> T:
    """Return what ``work`` returns; print its error in one line and end the process."""
    from shale_cli.framework.session import run_reporting_errors

    results: list[T] = []

    def keep() -> int:
        results.append(work())
        return 0

    code = run_reporting_errors(options, keep)
    if not results:
        raise SystemExit(code)
    return results[0]


def _request(output: "Output", said: dict[str, Any], *, is_work: bool) -> "CompactionRequest | None":
    """Return the request that the options describe; ``None``: to be a worker.

    Raises:
        InvalidRequestError: the options describe none or several, or contradict each other.
    """
    from shale.errors import InvalidRequestError
    from shale_cli.commands.compaction.request import build_request

    if not is_work:
        return build_request(output, **said)
    for name, value in said.items():
        if value is not None and value is not False:
            raise InvalidRequestError(f"--work submits nothing: leave out --{name}")
    return None


def _worker_options(settings: "WorkerSettings", ranges: int | None) -> "SparkWorkerOptions":
    """Return the worker's settings, but poll every second, because the caller waits, and persist every SST."""
    from shale_spark.compaction.worker import SparkWorkerOptions

    spark, worker = settings.spark.settings(), settings.worker_options()
    return SparkWorkerOptions(
        settings=spark if ranges is None else replace(spark, ranges=ranges),
        options=settings.executor_options(),
        worker=replace(
            worker,
            compactions_poll_interval_s=min(worker.compactions_poll_interval_s, POLL_INTERVAL_S),
            persist_every_sst=True,
        ),
        transforms=settings.transform_names(),
    )


def _show(output: "Output", infos: "tuple[CompactionInfo, ...]") -> None:
    from shale_cli.commands.compaction.rows import COLUMNS, item

    if not infos:
        output.note("no tree has sorted runs: nothing to compact")
    output.listing("compactions", [item(info, output) for info in infos], COLUMNS)


def _become_worker(
    options: "GlobalOptions", master: str | None, conf: Sequence[str] | None, ranges: int | None
) -> NoReturn:
    """Become `shale worker` with its executor on Spark: it has a health port, and releases claims at its end."""
    from shale_cli.__main__ import run_process
    from shale_cli.framework.session import command_line
    from shale_spark.prerequisites import require_extra

    def arguments() -> list[str]:
        require_extra()
        return worker_arguments(master, pairs(conf, "--conf"), ranges)

    run_process("worker", [*command_line(options), *_run_guarded(options, arguments)])


def worker_arguments(master: str | None, conf: Mapping[str, str], ranges: int | None) -> list[str]:
    """Return the command line of a worker with these options."""
    wanted = {"spark.executor": "spark", "spark.master": master, "spark.ranges": ranges}
    settings = [f"--set={name}={value}" for name, value in wanted.items() if value is not None]
    if conf:
        # JSON strings are valid TOML, and property names have dots.
        table = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items())
        settings.append(f"--set=spark.conf={{ {table} }}")
    return settings
