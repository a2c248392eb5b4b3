"""``list`` and ``show`` of sequenced files: the same for manifests and compactions files."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shale.admin.json_values import rfc3339
from shale_cli.session import Session

if TYPE_CHECKING:
    from shale.env import Env
    from shale.protocol.versioned_store import VersionedStore
    from shale.store.port import ObjectStore

T = TypeVar("T")
StoreClass = Callable[["ObjectStore", str, "Env"], "VersionedStore[T]"]


async def list_versions(
    session: Session,
    noun: str,
    open_versions: "StoreClass[T]",
    start: int | None = None,
    end: int | None = None,
) -> None:
    """Print id, time and size of every version that is stored, from ``start`` on and below ``end`` if given.

    Raises:
        LatestRecordMissing: there is none.
    """
    async with session.open_store() as store:
        found = await open_versions(store, session.path, session.env).list_versions()
    if not found:
        raise _none(session, noun)
    items = [
        {
            "id": each.id,
            "last_modified": rfc3339(each.last_modified_ms),
            "last_modified_ms": each.last_modified_ms,
            "bytes": each.size,
        }
        for each in found
        if (start is None or each.id >= start) and (end is None or each.id < end)
    ]
    session.output.listing("versions", items, ("id", "last_modified", "bytes"))


async def show_version(
    session: Session,
    noun: str,
    open_versions: "StoreClass[T]",
    file_id: int | None,
    describe: Callable[[T], tuple[Mapping[str, Any], Sequence[tuple[str, object]]]],
) -> None:
    """Print one version, the latest by default.

    Args:
        describe: the value as JSON and as rows of a table.

    Raises:
        NotFoundError: there is no such version.
    """
    from shale.errors import NotFoundError

    async with session.open_store() as store:
        versions = open_versions(store, session.path, session.env)
        if file_id is None:
            latest = await versions.try_read_latest()
            if latest is None:
                raise _none(session, noun)
            file_id, value = latest.id, latest.value
        else:
            found = await versions.read(file_id)
            if found is None:
                raise NotFoundError(f"{session.location.url}: no version {file_id} of {noun} is stored")
            value = found
    data, rows = describe(value)
    session.output.record({"id": file_id, noun: data}, [("id", file_id), *rows])


def _none(session: Session, noun: str) -> Exception:
    from shale.errors import LatestRecordMissing

    return LatestRecordMissing(f"{session.location.url}: no {noun} was ever written here")
