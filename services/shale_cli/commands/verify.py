"""``shale verify``: checks that all objects of a database exist, are readable and consistent."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.admin.verify.report import VerifyReport
    from shale_cli.framework.output.writer import Output

EXAMPLES = "Examples:  shale verify -u s3://bucket/db  |  shale verify --deep -o json -u s3://bucket/db"
MIB = 1 << 20
_FINDING_COLUMNS = ("severity", "code", "object", "place", "message")
_ORPHAN_COLUMNS = ("object", "bytes", "reason", "kept_by", "collected_from")


def verify(
    context: typer.Context,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of SSTs, read only footers, indexes, filters and stats, and no blocks.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also decode every row, and compare it with indexes, filters and stats.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="Check only the state of this checkpoint (id or name).")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Objects to read concurrently; default: 4, 8 with --quick, 2 with --deep.")
    ] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="List unreferenced objects in the table.")] = False,
    min_age: Annotated[str, typer.Option(help="The min_age of the gc.")] = "5min",
) -> None:
    """Verify a database, which may be in use; exit 4 if there are findings.  Nothing is written.

    Every manifest, compactions file, SST and WAL file is read, every checksum is checked, and their contents are
    compared, including the parents of a clone.  Unreferenced objects are listed separately, with the reason why they
    still exist.
    """

    async def work(session: CliSession) -> int:
        from shale.core.settings_values import parse_duration_s
        from shale.service.exit_codes import ExitCode

        min_age_ms = int(parse_duration_s(min_age, name="--min-age") * 1000)
        async with session.admin() as admin:
            options = {"deep": deep, "quick": quick, "checkpoint": checkpoint, "concurrency": concurrency}
            report = await _checked(admin, session, options)
        _show(session.output, report, orphans=orphans, min_age_ms=min_age_ms)
        if report.is_sound:
            return ExitCode.OK
        count = len(report.findings) + report.findings_left_out
        print_error(f"{session.location.url}: {count} finding{'s' if count > 1 else ''}")
        return ExitCode.NEGATIVE

    run(context, work)


async def _checked(admin: "Admin", session: CliSession, options: dict[str, Any]) -> "VerifyReport":
    from shale.admin.verify.database import VerifyProgress
    from shale_cli.framework.output.progress import progress

    with progress(session.output, session.env.clock, "checked", "MiB") as on_progress:

        def show_progress(reached: VerifyProgress) -> None:
            if reached.stage == "objects":
                on_progress(reached.read_bytes // MIB, reached.total_bytes // MIB)

        return await admin.verify(**options, on_progress=show_progress)


def _show(output: "Output", report: "VerifyReport", *, orphans: bool, min_age_ms: int) -> None:
    """Print findings and numbers as tables, everything as JSON, or the findings as CSV."""
    from shale.admin.verify.report import COUNTS, finding_json, orphan_json, report_json
    from shale_cli.framework.output.writer import Format

    findings = [finding_json(finding) for finding in report.findings]
    if output.format is Format.CSV:
        output.listing("findings", findings, _FINDING_COLUMNS)
        return
    data = report_json(report, min_age_ms=min_age_ms)
    if not output.is_table:
        output.record(data, ())
        return
    if findings:
        output.listing("findings", findings, _FINDING_COLUMNS)
    if orphans and report.orphans:
        output.listing("orphans", [orphan_json(each, min_age_ms) for each in report.orphans], _ORPHAN_COLUMNS)
    output.record(
        data,
        [
            ("state", report.state.value),
            *(("remark", remark) for remark in report.remarks),
            ("cannot know", "; ".join(report.cannot_know)),
            ("manifest_id", report.manifest_id),
            ("depth", report.depth.value),
            *((name, count) for name in COUNTS if (count := getattr(report, name)) is not None),
            ("findings", len(report.findings) + report.findings_left_out),
            *(
                ("orphans", f"{total.objects} ({total.bytes} bytes): {reason}")
                for reason, total in report.orphan_totals.items()
            ),
        ],
    )
