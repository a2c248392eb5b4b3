"""How the sources of a clone and ranges of keys are written on the command line."""

from collections.abc import Sequence
from dataclasses import replace

from shale.clones.request import CloneSource
from shale.errors import InvalidRequestError
from shale.protocol.checkpoint_names import id_in
from shale.protocol.manifest_store import ManifestStore
from shale.store.location import normalize_path, parse_location
from shale.types import KeyRange
from shale_cli.output import Output
from shale_cli.session import Session


async def parse_sources(session: Session, texts: Sequence[str], ranges: Sequence[str]) -> tuple[CloneSource, ...]:
    """``PATH[@CHECKPOINT]`` for each source, and its range if there are ranges.

    A checkpoint is an id or a name.  Paths may hold an ``@`` of their own: where there is a database at all of the
    text, that is meant.

    Raises:
        InvalidRequestError: malformed, in another store, or not as many ranges as sources.
    """
    if ranges and len(ranges) != len(texts):
        raise InvalidRequestError(f"--source-range: {len(ranges)} ranges for {len(texts)} sources; give one for each")
    sources = [await _source(session, text) for text in texts]
    if not ranges:
        return tuple(sources)
    keys = [parse_range(session.output, text) for text in ranges]
    return tuple(replace(each, keys=wanted) for each, wanted in zip(sources, keys, strict=True))


def parse_range(output: Output, text: str) -> KeyRange:
    """``START..END``, keys in the key format, an empty side for no limit; the end is not in the range.

    Raises:
        InvalidRequestError: malformed.
    """
    start, separator, end = text.partition("..")
    if not separator or end.startswith(".") or ".." in end:
        raise InvalidRequestError(f"{text!r} is no range START..END; keys with dots can be written in hex")
    return KeyRange.half_open(output.parse(start) if start else None, output.parse(end) if end else None)


async def _source(session: Session, text: str) -> CloneSource:
    path, at, name = text.rpartition("@")
    if not at or not name or "/" in name:
        return CloneSource(path=_path(session, text))
    checkpoint = id_in(name)
    is_certain = checkpoint is not None and str(checkpoint) == name.lower()
    if not is_certain and await _is_database(session, _path(session, text)):
        return CloneSource(path=_path(session, text))
    return CloneSource(path=_path(session, path), checkpoint=name)


async def _is_database(session: Session, path: str) -> bool:
    async with session.open_store() as store:
        return bool(await ManifestStore(store, path, session.env).list_versions())


def _path(session: Session, text: str) -> str:
    if "://" not in text:
        return normalize_path(text)
    location = parse_location(text)
    if location.store_url != session.location.store_url:
        raise InvalidRequestError(
            f"--source: {text} is not in {session.location.store_url}, where the clone will be; one that lies deeper "
            "in the same store is named with --store and --path"
        )
    return location.path
