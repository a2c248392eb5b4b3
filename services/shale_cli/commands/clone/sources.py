"""Parses the sources of a clone and key ranges from the command line."""

from collections.abc import Sequence
from dataclasses import replace

from shale.clones.request import CloneSource
from shale.errors import AccessDenied, InvalidRequestError
from shale.protocol.checkpoints import parse_checkpoint_id
from shale.protocol.manifest_store import ManifestStore
from shale.store.location import normalize_path, parse_location
from shale.types import KeyRange
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession


async def parse_sources(session: CliSession, texts: Sequence[str], ranges: Sequence[str]) -> tuple[CloneSource, ...]:
    """Parse ``PATH[@CHECKPOINT]`` for each source, and one range per source if there are ranges.

    A checkpoint is an id or a name.  A path may contain ``@``: if a database exists at the whole text, the text is its
    path.

    Raises:
        InvalidRequestError: a source is malformed or in another store, or the number of ranges differs.
    """
    if ranges and len(ranges) != len(texts):
        raise InvalidRequestError(
            f"--source-range: {len(ranges)} ranges for {len(texts)} sources; give one range per source"
        )
    sources = [await _source(session, text) for text in texts]
    if not ranges:
        return tuple(sources)
    keys = [parse_range(session.output, text) for text in ranges]
    return tuple(replace(each, keys=wanted) for each, wanted in zip(sources, keys, strict=True))


def parse_range(output: Output, text: str) -> KeyRange:
    """Parse ``START..END`` (end exclusive), keys in the key format; an empty side means no limit.

    Raises:
        InvalidRequestError: the range is malformed.
    """
    start, separator, end = text.partition("..")
    if not separator or end.startswith(".") or ".." in end:
        raise InvalidRequestError(f"{text!r} is not a range START..END; write keys that contain dots in hex")
    return KeyRange.half_open(output.parse(start) if start else None, output.parse(end) if end else None)


async def _source(session: CliSession, text: str) -> CloneSource:
    path, at, name = text.rpartition("@")
    if not at or not name or "/" in name:
        return CloneSource(path=_path(session, text))
    checkpoint = parse_checkpoint_id(name)
    is_certain = checkpoint is not None and str(checkpoint) == name.lower()
    if not is_certain and await _is_database(session, _path(session, text)):
        return CloneSource(path=_path(session, text))
    return CloneSource(path=_path(session, path), checkpoint=name)


async def _is_database(session: CliSession, path: str) -> bool:
    async with session.open_store() as store:
        try:
            return bool(await ManifestStore(store, path, session.env).list_versions())
        except AccessDenied:  # rights are often limited to the paths of databases, and this is none that can be cloned
            return False


def _path(session: CliSession, text: str) -> str:
    if "://" not in text:
        return normalize_path(text)
    location = parse_location(text)
    if location.store_url != session.location.store_url:
        raise InvalidRequestError(
            f"--source: {text} is not in {session.location.store_url}, the store of the clone; for a path of several "
            "levels in the same store, use --store and --path"
        )
    return location.path
