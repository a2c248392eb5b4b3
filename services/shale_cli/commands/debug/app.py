"""``shale debug``: collects data for bug reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shale_cli.framework.client_tls import CaFile, ClientCertFile, ClientKeyFile, tls_files
from shale_cli.framework.session import CliSession, GlobalOptions, command_line, run

app = typer.Typer(help="Collect data for bug reports.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _nouns() -> None:
    """Collect data for bug reports."""


@app.command(
    epilog="Examples:  shale debug bundle -u s3://bucket/db  |  "
    "shale debug bundle -u s3://bucket/db --daemon http://writer:9464 --log writer.log  |  "
    "shale debug bundle -f - -u s3://bucket/db > bundle.tar.gz"
)
def bundle(
    context: typer.Context,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The file to create; -: stdout; default: shale-debug-….tar.gz.")
    ] = None,
    daemon: Annotated[
        list[str] | None, typer.Option(help="The admin port of a daemon, http://host:9464; repeatable.")
    ] = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="A log file, of which the last 10 MiB are added; repeatable.")
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Keep keys of rows; values are never included.")] = False,
    versions: Annotated[
        int, typer.Option(min=1, help="How many of the latest manifests and compactions files to add.")
    ] = 20,
    verify: Annotated[bool, typer.Option(help="Also verify the database.")] = True,
    deep: Annotated[bool, typer.Option("--deep", help="Verify every row.")] = False,
) -> None:
    """Collect the data of a bug report in one file: state, listings, settings, versions, metrics, logs.

    Secrets and values of rows are left out, and keys are replaced by their ranks.  Check the file before you send it:
    names of databases, checkpoints and objects are not redacted.
    """

    async def work(session: CliSession) -> None:
        from contextlib import nullcontext
        from tempfile import TemporaryDirectory

        from shale_cli.commands.debug.bundle.archive import Archive
        from shale_cli.commands.debug.bundle.contents import Bundler, BundleRequest
        from shale_cli.framework.output.writer import write_bytes

        now_ms = session.env.clock.now_ms()
        to_stdout = file == Path("-")
        name = f"shale-debug-{session.path.replace('/', '_')}-{now_ms // 1000}"
        path = file if file is not None and not to_stdout else Path(f"{name}.tar.gz")
        settings, redactor = _settings(context.obj, keeps_keys=keys)
        request = BundleRequest(
            versions=versions,
            daemons=daemon or (),
            tls=tls_files(ca_file, client_cert_file, client_key_file),
            logs=log or (),
            settings=settings,
            verify=verify,
            deep=deep,
            wal_store=session.wal_store,
        )
        with TemporaryDirectory() if to_stdout else nullcontext() as folder:
            made = path if folder is None else Path(folder) / path
            with Archive(made, name, now_ms // 1000) as archive:
                bundler = Bundler(session, archive, redactor)
                await bundler.fill(request)
            if to_stdout:
                write_bytes(made.read_bytes())
                _note(session, bundler.left_out)
                return
        data = {"file": str(path), "files": len(archive.names), "left_out": bundler.left_out}
        rows = [("file", str(path)), ("files", len(archive.names))]
        session.output.record(data, [*rows, *(("left out", f"{it['what']}: {it['why']}") for it in bundler.left_out)])

    run(context, work)


def _note(session: CliSession, left_out: Sequence[Mapping[str, str]]) -> None:
    """Tell on stderr what is missing from an archive on stdout."""
    for each in left_out:
        session.output.note(f"left out: {each['what']}: {each['why']}")


def _settings(options: GlobalOptions, *, keeps_keys: bool) -> tuple[dict[str, Any], Any]:
    """Return the settings of each daemon, and a redactor for every secret in settings, variables and files."""
    import os

    from shale.service.config.settings import load_settings
    from shale.service.config.settings_error import SettingsError
    from shale.service.config.source_names import SECRETS_DIR
    from shale_cli.commands.debug.bundle.redaction import (
        Redactor,
        secrets_of_environment,
        secrets_of_files,
        secrets_of_settings,
    )
    from shale_cli.framework.daemons import DAEMONS, settings_class

    directory = Path(os.environ.get("SHALE_SECRETS_DIR", SECRETS_DIR))
    secrets = secrets_of_environment(os.environ) | secrets_of_files(directory.glob("*"))
    found: dict[str, Any] = {}
    for role in DAEMONS:
        try:
            loaded = load_settings(settings_class(role), command_line(options))
        except SettingsError as error:
            found[role] = {"problems": list(error.problems)}
            continue
        secrets |= secrets_of_settings(loaded.settings)
        if loaded.settings.encryption is not None:
            secrets |= secrets_of_files([Path(loaded.settings.encryption.key_file)])
        found[role] = loaded.settings.model_dump(mode="json", exclude={"config"})
    return found, Redactor(secrets, keeps_keys=keeps_keys)
