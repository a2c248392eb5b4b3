"""SlateDB's flat names: hidden commands that print JSON whatever stdout is, so that scripts carry over.

``shale_cli.commands`` names them, and those that need no translation, and gives all of them JSON as output.

Source: docs/protocol.md 13.2.
"""

from dataclasses import replace
from typing import Annotated

import typer

from shale_cli.session import GlobalOptions, Session, run


def submit_compaction(
    context: typer.Context,
    request: Annotated[str, typer.Option(help="The request as JSON.")],
    scheduler: Annotated[str, typer.Option(help="Accepted for SlateDB's sake; requests need none.")] = "size-tiered",
) -> None:
    """`shale compaction submit --request JSON`."""

    async def work(session: Session) -> int | None:
        from shale.errors import InvalidRequestError
        from shale_cli.compaction import submit_request
        from shale_cli.compaction_request import parse_text

        if scheduler != "size-tiered":
            raise InvalidRequestError(f"--scheduler: {scheduler!r} is not size-tiered")
        return await submit_request(session, parse_text(request))

    run(context, work)


def read_compaction(
    context: typer.Context,
    compaction_id: Annotated[str, typer.Option("--id", "-i", help="The ULID of the compaction.")],
    compactions_id: Annotated[int | None, typer.Option(help="A version of the compactions file.")] = None,
) -> None:
    """`shale compaction status ID`."""

    async def work(session: Session) -> None:
        from shale_cli.compaction import show_status

        await show_status(session, compaction_id, compactions_id)

    run(context, work)


def read_compactions(
    context: typer.Context,
    file_id: Annotated[int | None, typer.Option("--id", "-i", help="A version; the latest by default.")] = None,
) -> None:
    """`shale compactions show [ID]`."""
    from shale_cli.compactions import show

    show(context, file_id)


def list_compactions(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", "-s", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", "-e", help="The version to stop before.")] = None,
) -> None:
    """`shale compactions list`, with what each version says."""

    async def work(session: Session) -> None:
        from shale.protocol.compactions_store import CompactionsStore
        from shale_cli.compactions import describe
        from shale_cli.versions import list_whole_versions

        await list_whole_versions(session, "compactions", CompactionsStore, start=start, end=end, describe=describe)

    run(context, work)


def read_manifest(
    context: typer.Context,
    manifest_id: Annotated[int | None, typer.Option("--id", "-i", help="A version; the latest by default.")] = None,
) -> None:
    """`shale manifest show [ID]`."""
    from shale_cli.manifest import show

    show(context, manifest_id)


def list_manifests(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", "-s", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", "-e", help="The version to stop before.")] = None,
) -> None:
    """`shale manifest list`, with what each version says."""

    async def work(session: Session) -> None:
        from shale.protocol.manifest_store import ManifestStore
        from shale_cli.manifest import describe
        from shale_cli.versions import list_whole_versions

        await list_whole_versions(session, "manifest", ManifestStore, start=start, end=end, describe=describe)

    run(context, work)


def scan(
    context: typer.Context,
    *,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="The first key, inclusive.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="The last key, exclusive.")] = None,
    key: Annotated[str, typer.Option(help="auto, hex or utf8: how the keys above are written.")] = "auto",
    value: Annotated[str, typer.Option(help="Accepted for SlateDB's sake: JSON has the whole value.")] = "auto",
    max_keys: Annotated[int | None, typer.Option(min=0, help="Rows at most.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many rows there are, and their bytes.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="The UUID of a checkpoint.")] = None,
) -> None:
    """`shale kv scan`."""
    from shale_cli.kv import scan as kv_scan
    from shale_cli.output import KeyFormat

    _refuse_unknown("--key", key, ("auto", "hex", "utf8"))
    _refuse_unknown("--value", value, ("auto", "hex", "utf8", "len", "none"))
    if prefix is not None and (from_ is not None or to is not None):
        raise typer.BadParameter("--prefix cannot be used with --from and --to")
    options: GlobalOptions = context.obj
    context.obj = replace(options, output=replace(options.output, key_format=KeyFormat.HEX))
    first, start, stop = (None if text is None else _as_hex(text, key) for text in (prefix, from_, to))
    kv_scan(context, prefix=first, start=start, stop=stop, limit=max_keys, count=count, checkpoint=checkpoint)


def _refuse_unknown(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise typer.BadParameter(f"{option}: {given!r} is none of {', '.join(known)}")


def _as_hex(text: str, mode: str) -> str:
    """A key as SlateDB's tool takes it: ``auto`` is hex only behind ``0x``, ``hex`` may have it."""
    has_mark = text[:2] in ("0x", "0X")
    if mode == "hex" or (mode == "auto" and has_mark):
        return text[2:] if has_mark else text
    return text.encode("utf-8", "surrogateescape").hex()
