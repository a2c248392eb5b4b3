"""``shale cas``: the transactional store of the two-phase mode (docs/how-to/stores-without-cas.md)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shale.admin.cas_migration import CasMigration, MigrationReport
    from shale.store.port import ObjectStore
    from shale.store.transactional.port import TransactionalStore
    from shale.store.two_phase.recovery import RecoveryResult

app = typer.Typer(
    help="Commit records of databases on stores without conditional writes: the settings store.cas=two-phase and "
    "store.transactional_url.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class MigrationTarget(StrEnum):
    """Where to migrate a database."""

    NATIVE = "native"
    TWO_PHASE = "two-phase"


Yes = Annotated[bool, typer.Option("--yes", help="Act without a question.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]


@app.command(epilog="Example:  shale cas init --store s3://bucket")
def init(context: typer.Context) -> None:
    """Create the tables of commit records for one bucket or directory; success if they exist."""

    async def work(session: CliSession) -> None:
        from shale.store.two_phase.identity import copy_id, share_id

        async with _records(session) as records, _plain_stores(session) as (objects, wal_objects):
            await records.create_schema()
            await share_id(objects, records, session.env)
            if wal_objects is not None:
                await copy_id(objects, wal_objects)
            _show(session, {"store": records.url, "tables_version": await records.schema_version()})

    run(context, work)


@app.command(epilog="Example:  shale cas status -u s3://bucket/db")
def status(context: typer.Context) -> None:
    """Show records and low-water marks; exit 4 if a put or a deletion is not finished."""

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode
        from shale.store.two_phase.identity import ID_KEY

        prefix = f"{session.location.path}/" if session.location.path else ""
        async with _records(session) as records:
            all_records = [each for each in await records.records(prefix) if each.destination != ID_KEY]
            marks = await records.low_water_marks(prefix)
            found = {
                "store": records.url,
                "tables_version": await records.schema_version(),
                "records": len(all_records),
                "uncommitted": sum(not record.is_committed and not record.is_deleted for record in all_records),
                "deleting": sum(record.is_deleted for record in all_records),
                "marks": marks,
            }
        _show(session, found)
        return ExitCode.NEGATIVE if found["uncommitted"] or found["deleting"] else ExitCode.OK

    run(context, work)


@app.command(epilog="Example:  shale cas recover -u s3://bucket/db")
def recover(context: typer.Context) -> None:
    """Finish all puts and deletions, also young ones; exit 4 if one cannot be finished."""

    async def work(session: CliSession) -> int:
        from shale.format.names import wal_prefix
        from shale.service.exit_codes import ExitCode

        path = session.location.path
        prefix = f"{path}/" if path else ""
        in_wal_store = wal_prefix(path) if path and session.wal_store is not None else None
        async with session.open_store() as store, session.open_wal_store(store) as wal_store:
            results = [await _recovered(session, store, prefix, excluded=in_wal_store)]
            if in_wal_store is not None:
                results.append(await _recovered(session, wal_store, in_wal_store))
        errors = {destination: str(error) for result in results for destination, error in result.errors.items()}
        recovered = [destination for result in results for destination in result.recovered]
        _show(session, {"recovered": recovered, "errors": errors})
        return ExitCode.NEGATIVE if errors else ExitCode.OK

    run(context, work)


@app.command(epilog="Example:  shale cas migrate --to two-phase -u s3://bucket/db")
def migrate(
    context: typer.Context,
    *,
    to: Annotated[MigrationTarget, typer.Option("--to", help="The mode after the migration.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move a database to or from the two-phase mode.

    Stop all of its processes first.  An interrupted migration is run again.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.framework.confirmation import ask_confirmation

        async with _migration(session) as migration:
            plan = await _run(migration, to, dry_run=True)
            _show(session, _json(plan, to))
            what = f"move {session.path} to {to.value}: no process of the database may run"
            if ask_confirmation(session.output, session.path, yes=yes, dry_run=dry_run, what=what):
                await _run(migration, to, dry_run=False)
                session.output.note(f"{session.path} has store.cas={to.value} now")

    run(context, work)


async def _recovered(
    session: CliSession, store: "ObjectStore", prefix: str, *, excluded: str | None = None
) -> "RecoveryResult":
    from shale.store.two_phase.recovery import TwoPhaseRecovery
    from shale.store.two_phase.store import two_phase_of
    from shale.telemetry.metrics import Metrics

    two_phase = two_phase_of(store)
    _require(two_phase is not None)
    assert two_phase is not None
    recovery = TwoPhaseRecovery(two_phase, session.env, Metrics(), prefix, excluded=excluded)
    return await recovery.recover(min_age_ms=None)


async def _run(migration: "CasMigration", to: MigrationTarget, *, dry_run: bool) -> "MigrationReport":
    if to is MigrationTarget.NATIVE:
        return await migration.to_native(dry_run=dry_run)
    return await migration.to_two_phase(dry_run=dry_run)


def _json(report: "MigrationReport", to: MigrationTarget) -> dict[str, object]:
    told: dict[str, object] = {"to": to.value, "done_already": report.is_done_already}
    told |= {"records": report.records, "removed": report.removed, "marks": report.marks}
    return told | {"manifest_id": report.manifest_id}


@asynccontextmanager
async def _records(session: CliSession) -> AsyncIterator["TransactionalStore"]:
    from shale.store.transactional.connect import open_transactional_store

    url = session.store_options.transactional_url
    _require(url is not None)
    assert url is not None
    records = open_transactional_store(url)
    try:
        yield records
    finally:
        await records.aclose()


@asynccontextmanager
async def _plain_stores(session: CliSession) -> AsyncIterator[tuple["ObjectStore", "ObjectStore | None"]]:
    """Open the stores below the two-phase mode: that of the database, and that of its WAL if it is separate."""
    from dataclasses import replace

    from shale.store.connect import connect
    from shale.types import CasMode

    options = replace(session.store_options, cas=CasMode.NATIVE, transactional_url=None)

    def opened(url: str) -> "ObjectStore":
        return connect(url, session.env, None, options)

    objects = opened(session.location.store_url)
    wal_objects = None if session.wal_store is None else opened(session.wal_store)
    try:
        yield objects, wal_objects
    finally:
        for store in filter(None, (objects, wal_objects)):
            await store.aclose()


@asynccontextmanager
async def _migration(session: CliSession) -> AsyncIterator["CasMigration"]:
    from shale.admin.cas_migration import CasMigration
    from shale.store.two_phase.identity import require_same_id

    async with _records(session) as records, _plain_stores(session) as (objects, wal_objects):
        for store in filter(None, (objects, wal_objects)):
            await require_same_id(store, records)
        yield CasMigration(
            objects=objects, records=records, root=session.path, env=session.env, wal_objects=wal_objects
        )


def _show(session: CliSession, data: "Mapping[str, object]") -> None:
    rows = [(name, _text(value)) for name, value in data.items()]
    session.output.record(data, rows)


def _text(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "-"
    return ", ".join(map(str, value)) or "-" if isinstance(value, list) else value


def _require(has_settings: bool) -> None:
    from shale.errors import InvalidRequestError

    if not has_settings:
        raise InvalidRequestError("no transactional store: set store.cas=two-phase and store.transactional_url")
