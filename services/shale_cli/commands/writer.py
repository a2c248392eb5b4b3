"""``shale writer promote``: makes a standby the writer; without a verb, ``shale writer`` is the daemon."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.admin_token import ADVICE, AdminTokenFile, admin_token
from shale_cli.framework.client_tls import CaFile, ClientCertFile, ClientKeyFile, tls_files
from shale_cli.framework.probe import DEFAULT_PORT
from shale_cli.framework.session import GlobalOptions, configure_verbose_logging, parse_timeout, run_reporting_errors

if TYPE_CHECKING:
    from shale.client.tls import TlsFiles

app = typer.Typer(
    help="Control a standby; without a verb, run the writer as a daemon.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WAIT_S = 300.0


@app.callback()
def _verbs() -> None:
    """Keep typer from turning an application with one verb into that verb."""


@app.command(
    epilog="Examples:  shale writer promote --admin 10.0.0.7:9464  |  "
    "shale writer promote --admin https://standby.example:9464 --admin-token-file admin.token"
)
def promote(
    context: typer.Context,
    *,
    admin: Annotated[
        str | None,
        typer.Option(help="Host and port, or URL, of the standby's admin port; default 127.0.0.1:$SHALE_ADMIN__PORT."),
    ] = None,
    admin_token_file: AdminTokenFile = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
) -> None:
    """Make a standby the writer now.  An active writer is fenced; writes that it has not acknowledged may be lost.

    Returns when the standby is the writer, which takes as long as it replays the WAL; --timeout limits that.
    """
    options: GlobalOptions = context.obj
    tls = tls_files(ca_file, client_cert_file, client_key_file)
    raise SystemExit(run_reporting_errors(options, lambda: _promote(options, _url(admin), admin_token_file, tls)))


def _url(admin: str | None) -> str:
    """Return the URL of an admin port."""
    import os

    given = admin or f"127.0.0.1:{os.environ.get('SHALE_ADMIN__PORT', DEFAULT_PORT)}"
    return given if "://" in given else f"http://{given}"


def _promote(options: GlobalOptions, url: str, token_file: Path | None, tls: "TlsFiles") -> int:
    import anyio

    from shale.client.client import client_without_repeats
    from shale.errors import AccessDenied

    configure_verbose_logging(options)
    wait_s = parse_timeout(options) or WAIT_S
    token = admin_token(token_file)

    async def ask() -> dict[str, object]:
        # The caller decides whether to repeat a takeover that may have happened.
        async with client_without_repeats(url, token=token, timeout=wait_s, total_timeout=wait_s, **tls) as client:
            answer: dict[str, object] = (await client.send("POST", "/v1/admin/promote")).json()
            return answer

    try:
        answer = anyio.run(ask)
    except AccessDenied as error:
        raise AccessDenied(f"{url}: {error}; {ADVICE}") from error
    options.output.record(answer, [(name, answer[name]) for name in ("state", "epoch", "promoted")])
    return 0
