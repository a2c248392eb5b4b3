"""Reads and prints versions: the work of ``list`` and ``show`` for manifests and compactions files."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shale.admin.json_values import rfc3339
from shale_cli.framework.output.fields import chosen
from shale_cli.framework.output.writer import SCHEMA_VERSION, write_text
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from shale.env import Env
    from shale.protocol.versioned import VersionMeta
    from shale.protocol.versioned_store import VersionedStore
    from shale.store.port import ObjectStore

T = TypeVar("T")
StoreClass = Callable[["ObjectStore", str, "Env"], "VersionedStore[T]"]
Describe = Callable[[T], tuple[Mapping[str, Any], Sequence[tuple[str, object]]]]
"""Returns a value as JSON, and as rows of a table."""


async def list_versions(
    session: CliSession,
    noun: str,
    open_versions: "StoreClass[T]",
    start: int | None = None,
    end: int | None = None,
) -> None:
    """Print id, time and size of the stored versions from ``start`` (inclusive) to ``end`` (exclusive).

    Raises:
        LatestRecordMissing: no version exists.
    """
    async with session.open_store() as store:
        found = await _between(session, noun, open_versions(store, session.path, session.env), start, end)
    session.output.listing("versions", [_item(each) for each in found], ("id", "last_modified", "bytes"))


async def list_whole_versions(
    session: CliSession,
    noun: str,
    open_versions: "StoreClass[T]",
    *,
    start: int | None,
    end: int | None,
    describe: Describe[T],
) -> None:
    """Print versions with their contents, like SlateDB's tool: one JSON document, streamed.

    A version that is deleted between the listing and its read is skipped.

    Raises:
        LatestRecordMissing: no version exists.
    """
    import orjson

    async with session.open_store() as store:
        versions = open_versions(store, session.path, session.env)
        found = await _between(session, noun, versions, start, end)
        write_text(f'{{"schema_version": {SCHEMA_VERSION}, "versions": [')
        separator = ""
        for each in found:
            value = await versions.read(each.id)
            if value is not None:
                item = chosen({**_item(each), noun: describe(value)[0]}, session.output.columns)
                sys.stdout.write(separator + orjson.dumps(item).decode())
                separator = ",\n"
        write_text("\n]}")


async def _between(
    session: CliSession, noun: str, versions: "VersionedStore[T]", start: int | None, end: int | None
) -> "list[VersionMeta]":
    found = await versions.list_versions()
    if not found:
        raise _missing(session, noun)
    return [each for each in found if (start is None or each.id >= start) and (end is None or each.id < end)]


def _item(version: "VersionMeta") -> dict[str, Any]:
    return {
        "id": version.id,
        "last_modified": rfc3339(version.last_modified_ms),
        "last_modified_ms": version.last_modified_ms,
        "bytes": version.size,
    }


async def show_version(
    session: CliSession,
    noun: str,
    open_versions: "StoreClass[T]",
    file_id: int | None,
    describe: Describe[T],
) -> None:
    """Print one version, the latest by default.

    Raises:
        NotFoundError: the version does not exist.
    """
    from shale.errors import NotFoundError

    async with session.open_store() as store:
        versions = open_versions(store, session.path, session.env)
        if file_id is None:
            latest = await versions.try_read_latest()
            if latest is None:
                raise _missing(session, noun)
            file_id, value = latest.id, latest.value
        else:
            found = await versions.read(file_id)
            if found is None:
                raise NotFoundError(f"{session.location.url}: no version {file_id} of {noun} is stored")
            value = found
    data, rows = describe(value)
    session.output.record({"id": file_id, noun: data}, [("id", file_id), *rows])


_FILE = {"compactions": "compactions file"}


def _missing(session: CliSession, noun: str) -> Exception:
    from shale.errors import LatestRecordMissing

    return LatestRecordMissing(f"{session.location.url}: no {_FILE.get(noun, noun)} exists here")
