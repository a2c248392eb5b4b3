"""The commands ``list`` and ``show`` of files with versions: manifests and compactions files."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from shale.core.lazy_dataclass import dataclass
from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from shale_cli.commands.versions import StoreClass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedFiles(Generic[T]):
    """One kind of files.

    Args:
        noun: the name of the command, and of the value in JSON.
        store: returns the class that reads them; it is imported only when a command runs.
        describe: returns a value as JSON, and as rows of a table.
    """

    noun: str
    store: "Callable[[], StoreClass[T]]"
    describe: Callable[[T], tuple[Mapping[str, Any], Sequence[tuple[str, object]]]]

    def list_versions(self, context: typer.Context, start: int | None, end: int | None) -> None:
        """Print the stored versions, oldest first."""

        async def work(session: CliSession) -> None:
            from shale_cli.commands.versions import list_versions

            await list_versions(session, self.noun, self.store(), start, end)

        run(context, work)

    def list_contents(self, context: typer.Context, start: int | None, end: int | None) -> None:
        """Print the stored versions with their contents."""

        async def work(session: CliSession) -> None:
            from shale_cli.commands.versions import list_whole_versions

            await list_whole_versions(session, self.noun, self.store(), start=start, end=end, describe=self.describe)

        run(context, work)

    def show(self, context: typer.Context, file_id: int | None) -> None:
        """Print one version, the latest by default."""

        async def work(session: CliSession) -> None:
            from shale_cli.commands.versions import show_version

            await show_version(session, self.noun, self.store(), file_id, self.describe)

        run(context, work)


def add_version_commands(app: typer.Typer, files: VersionedFiles[T], *, show_help: str) -> None:
    """Add ``list`` and ``show`` to a group of commands."""
    show = f"shale {files.noun} show"

    @app.command("list", epilog=f"Example:  shale {files.noun} list --start 100 -u s3://bucket/db")
    def list_(
        context: typer.Context,
        start: Annotated[int | None, typer.Option("--start", help="The first version.")] = None,
        end: Annotated[int | None, typer.Option("--end", help="The version to stop before.")] = None,
    ) -> None:
        """List the stored versions, oldest first."""
        files.list_versions(context, start, end)

    @app.command(
        "show", help=show_help, epilog=f"Examples:  {show} -u s3://bucket/db  |  {show} 12 -o yaml -u s3://bucket/db"
    )
    def show_version(
        context: typer.Context,
        file_id: Annotated[int | None, typer.Argument(metavar="ID", help="A version; the latest by default.")] = None,
    ) -> None:
        files.show(context, file_id)
