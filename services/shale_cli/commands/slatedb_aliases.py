"""SlateDB's flat command names: hidden commands that always print JSON, for scripts written for SlateDB's tool.

``shale_cli.framework.registry`` registers them, together with flat names that need no translation.

Source: docs/reference/protocol.md 13.2.
"""

from dataclasses import replace
from typing import Annotated

import typer

from shale_cli.framework.session import CliSession, GlobalOptions, run


def submit_compaction(
    context: typer.Context,
    request: Annotated[str, typer.Option(help="The request as JSON.")],
    scheduler: Annotated[
        str, typer.Option(help="Accepted for compatibility with SlateDB; has no effect.")
    ] = "size-tiered",
) -> None:
    """`shale compaction submit --request JSON`."""

    async def work(session: CliSession) -> int | None:
        from shale.errors import InvalidRequestError
        from shale_cli.commands.compaction.app import submit_request
        from shale_cli.commands.compaction.request import parse_text

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

    async def work(session: CliSession) -> None:
        from shale_cli.commands.compaction.app import show_status

        await show_status(session, compaction_id, compactions_id)

    run(context, work)


def read_compactions(
    context: typer.Context,
    file_id: Annotated[int | None, typer.Option("--id", "-i", help="A version; the latest by default.")] = None,
) -> None:
    """`shale compactions show [ID]`."""
    from shale_cli.commands.compactions import FILES

    FILES.show(context, file_id)


def list_compactions(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", "-s", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", "-e", help="The version to stop before.")] = None,
) -> None:
    """`shale compactions list`, with the content of each version."""
    from shale_cli.commands.compactions import FILES

    FILES.list_contents(context, start, end)


def read_manifest(
    context: typer.Context,
    manifest_id: Annotated[int | None, typer.Option("--id", "-i", help="A version; the latest by default.")] = None,
) -> None:
    """`shale manifest show [ID]`."""
    from shale_cli.commands.manifest import FILES

    FILES.show(context, manifest_id)


def list_manifests(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", "-s", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", "-e", help="The version to stop before.")] = None,
) -> None:
    """`shale manifest list`, with the content of each version."""
    from shale_cli.commands.manifest import FILES

    FILES.list_contents(context, start, end)


def scan(
    context: typer.Context,
    *,
    prefix: Annotated[str | None, typer.Option(help="Only keys with this prefix.")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="The first key, inclusive.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="The last key, exclusive.")] = None,
    key: Annotated[str, typer.Option(help="auto, hex or utf8: the encoding of the keys above.")] = "auto",
    value: Annotated[
        str, typer.Option(help="Accepted for compatibility with SlateDB; JSON has the whole value.")
    ] = "auto",
    max_keys: Annotated[int | None, typer.Option(min=0, help="Limit of rows.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows and bytes.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="The UUID of a checkpoint.")] = None,
) -> None:
    """`shale kv scan`."""
    from shale_cli.commands.kv.app import scan as kv_scan
    from shale_cli.framework.output.writer import KeyEncoding

    _refuse_unknown("--key", key, ("auto", "hex", "utf8"))
    _refuse_unknown("--value", value, ("auto", "hex", "utf8", "len", "none"))
    if prefix is not None and (from_ is not None or to is not None):
        raise typer.BadParameter("--prefix cannot be used with --from and --to")
    options: GlobalOptions = context.obj
    context.obj = replace(options, output=replace(options.output, key_format=KeyEncoding.HEX))
    first, start, stop = (None if text is None else _as_hex(text, key) for text in (prefix, from_, to))
    kv_scan(context, prefix=first, start=start, stop=stop, limit=max_keys, count=count, checkpoint=checkpoint)


def _refuse_unknown(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise typer.BadParameter(f"{option}: {given!r} is none of {', '.join(known)}")


def _as_hex(text: str, mode: str) -> str:
    """Convert a key argument of SlateDB's tool to hex: ``auto`` means hex after ``0x``, ``hex`` allows that prefix."""
    has_prefix = text[:2] in ("0x", "0X")
    if mode == "hex" or (mode == "auto" and has_prefix):
        return text[2:] if has_prefix else text
    return text.encode("utf-8", "surrogateescape").hex()
