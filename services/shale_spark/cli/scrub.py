"""``shale spark scrub``: check every byte of a database."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import Conf, Master

if TYPE_CHECKING:
    from shale_cli.framework.output.writer import Output
    from shale_spark.scrub import ScrubReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scrub", epilog="Example:  shale spark scrub --master spark://host:7077 -u s3://bucket/db")(scrub)


def scrub(
    context: typer.Context,
    *,
    checkpoint: Annotated[str | None, typer.Option(help="Only what this checkpoint (id or name) keeps.")] = None,
    orphans: Annotated[bool, typer.Option(help="Also look for unreferenced objects.")] = True,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Read a database to its last byte and check every checksum, order and reference.

    Exit code 4 and a line for each finding if something is wrong.  Orphans cost space, and are no finding.
    """

    def work(command: SparkCommand) -> int:
        from shale.service.exit_codes import ExitCode
        from shale_cli.framework.session import print_error
        from shale_spark.scrub import scrub as check_rows

        report = check_rows(command.spark, command.where, checkpoint=checkpoint, orphans=orphans)
        for finding in report.findings:
            print_error(str(finding))
        show(command.output, report)
        return ExitCode.OK if report.is_sound else ExitCode.NEGATIVE

    run(context, master, conf, work)


_COUNTS = ("manifest_id", "versions", "ssts", "wal_files", "rows", "read_bytes")


def show(output: "Output", report: "ScrubReport") -> None:
    """Show the counts and findings: numbers as a table, everything as JSON."""
    counts = {name: getattr(report, name) for name in _COUNTS}
    data = {
        **counts,
        "findings": [asdict(finding) for finding in report.findings],
        "orphans": [asdict(orphan) for orphan in report.orphans],
    }
    found = [("findings", len(report.findings)), ("orphans", len(report.orphans))]
    output.record(data, [*counts.items(), *found])
