"""``shale ui``: serves the console of any database on this machine; nothing is written to the store."""

from typing import Annotated

import typer

from shale_cli.framework.session import CliSession, run

HOST = "127.0.0.1"
"""The console is for this machine only: a daemon serves it to others."""


def ui(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")] = 0,
) -> None:
    """Serve a page about a database, without a daemon, until interrupted.  Nothing is written.

    The printed URL has a token that is new each time; without it the page shows nothing.
    """

    async def work(session: CliSession) -> int:
        import secrets

        import anyio
        from starlette.applications import Starlette

        from shale.console.install import console_routes
        from shale.engine.location import DatabaseStores
        from shale.service.exit_codes import ExitCode
        from shale.service.http.server import open_socket, serve_app
        from shale_cli.commands.kv.reading import open_reader

        token = secrets.token_urlsafe(24)
        async with (
            session.open_store() as store,
            session.open_wal_store(store) as wal_store,
            open_reader(session) as reader,
        ):
            stores = DatabaseStores(
                store, None if wal_store is store else wal_store, (), session.manifest_write_version
            )
            listener = open_socket(HOST, port, setting="--port")
            status = {"role": "ui", "db": session.alias, "url": session.location.url}
            routes = console_routes(stores, session.path, session.env, reader, status=status, token=token)
            app = Starlette(routes=routes)
            app.router.redirect_slashes = False
            async with serve_app(app, listener, request_timeout_s=1.0):
                typer.echo(f"http://{HOST}:{listener.getsockname()[1]}/#token={token}")
                await anyio.sleep_forever()
        return ExitCode.OK

    run(context, work)
