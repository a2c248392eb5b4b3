"""Checks that the WAL of a database is in the given store and complete, according to the manifest.

Only manifests of version 1 name a store (docs/reference/format.md 4); those with an envelope name a backend.
Every manifest records which files were durable when it was written, and a collector keeps those that replay needs
(docs/reference/protocol.md 4.3, 8.5).
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidDbState, InvalidRequestError, WalTruncated
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest

_GAPS_SHOWN_MAX = 10
log = get_logger("wal")
BACKEND_SCHEME = "wal-backend:"
"""The beginning of the URL of a WAL backend; its name follows."""


@dataclass(frozen=True, slots=True)
class WalGap:
    """Missing files: ``first_id`` to ``last_id``, both included."""

    first_id: int
    last_id: int

    def __str__(self) -> str:
        return f"{self.first_id}" if self.first_id == self.last_id else f"{self.first_id} to {self.last_id}"


def find_gaps(present: Iterable[int], first_id: int, last_id: int) -> tuple[WalGap, ...]:
    """Return the ranges of missing ids between two ids, both included; ``present``: existing ids, ascending."""
    gaps: list[WalGap] = []
    wanted = first_id
    for wal_id in chain((each for each in present if first_id <= each <= last_id), (last_id + 1,)):
        if wal_id > wanted:
            gaps.append(WalGap(wanted, wal_id - 1))
        wanted = wal_id + 1
    return tuple(gaps)


def show_gaps(gaps: Sequence[WalGap]) -> str:
    """Return the ids of missing files for a message; of many gaps, the first."""
    shown = ", ".join(map(str, gaps[:_GAPS_SHOWN_MAX]))
    return shown if len(gaps) <= _GAPS_SHOWN_MAX else f"{shown} and {len(gaps) - _GAPS_SHOWN_MAX} more ranges"


def wal_lost(wal: WalStore, gaps: Sequence[WalGap], *, is_end: bool = False) -> WalTruncated:
    """Return the error for files that the newest manifest still needs.

    Args:
        wal: names the first of them.
        gaps: all of them.
        is_end: no file follows them.
    """
    first_id = gaps[0].first_id
    why = (
        "their durable rows are not in an SST yet. Restore the files from a backup or from older versions of the "
        "objects, or read without them (allow_wal_gap, --allow-wal-gap); if the WAL has a store of its own, name it "
        "with wal_store (--wal-store)"
    )
    if is_end:
        why += ". If a release before 0.17 crashed here, they may never have existed, and no row is lost"
    files = show_gaps(gaps) if len(gaps) > 1 or gaps[0].last_id > first_id else ""
    return WalTruncated(first_id, why if files else why.replace("their", "its", 1), path=wal.key(first_id), files=files)


def log_skipped(wal: WalStore, gaps: Iterable[WalGap]) -> None:
    """Log files whose rows are left out because the caller allows it."""
    for gap in gaps:
        log.warning(
            Event.WAL_GAP_SKIPPED,
            object=wal.key(gap.first_id),
            first_wal_id=gap.first_id,
            last_wal_id=gap.last_id,
        )


def backend_name(store: ObjectStore | str | None) -> str | None:
    """Return the name of the backend that is given as the store of a WAL; ``None`` for other stores."""
    url = store if store is None or isinstance(store, str) else store.url
    return url.removeprefix(BACKEND_SCHEME) if url is not None and url.startswith(BACKEND_SCHEME) else None


def require_wal_store(manifest: Manifest, place: str, given: ObjectStore | str | None) -> None:
    """Check that the caller gave the WAL's store or backend that the manifest names; else rows would be missing.

    Args:
        manifest: the manifest of the database.
        place: the location of the database, for the error.
        given: the store that the caller gave for the WAL; ``None``: it is in the store of the database.

    Raises:
        InvalidRequestError: names the store or the backend to give.
    """
    wanted, found = manifest.wal_backend, backend_name(given)
    if wanted != found:
        kept = "a store" if wanted is None else f"the backend {wanted!r}, which is passed as wal"
        passed = "none was passed" if found is None else f"{found!r} was passed"
        raise InvalidRequestError(f"the database at {place or '/'} keeps its WAL in {kept}; of backends, {passed}")
    uri = manifest.wal_object_store_uri
    if uri is not None and given is None:
        raise InvalidRequestError(f"the database at {place or '/'} keeps its WAL in {uri}: name it with wal_store")


def is_wal_truncated(manifest: Manifest, last_id: int) -> bool:
    """Return whether a WAL that ends with ``last_id`` lacks files that this manifest names."""
    return last_id < manifest.next_wal_sst_id - 1


def wal_truncated(wal: WalStore, last_id: int, manifest: Manifest) -> InvalidDbState:
    """Return the error for a WAL that ends with ``last_id`` although its manifest names later files."""
    return InvalidDbState(
        f"{wal.key(last_id + 1)} does not exist, though the manifest names files up to {manifest.next_wal_sst_id - 1}:"
        " the WAL is in a store of its own (name it with wal_store), or the file was deleted"
    )


async def require_complete_wal(wal: WalStore, manifests: ManifestStore, manifest: Manifest, last_id: int) -> None:
    """Check that no rows are certainly missing after ``last_id``, the presumed end of the WAL.

    Releases before 0.17 counted a file when they froze its rows, so after a crash ``next_wal_sst_id`` may be ahead of
    a log that is whole, and stays so in the manifests that are derived from it.  It is trusted if there is no WAL
    file at all, or one after the missing file: files are written in order, and every writer writes a fence.

    Args:
        manifest: read before the end was searched for.
        last_id: at or above its ``replay_after_wal_id``.

    Raises:
        InvalidDbState: names the file.
    """
    if not is_wal_truncated(manifest, last_id):
        return
    listed = {int(file.id) for file in await wal.list()}
    if last_id + 1 in listed:
        return  # It was written after the search.
    if listed and not any(last_id < wal_id < manifest.next_wal_sst_id for wal_id in listed):
        log.warning(
            Event.WAL_ENDS_EARLY,
            object=wal.key(last_id + 1),
            first_wal_id=last_id + 1,
            last_wal_id=manifest.next_wal_sst_id - 1,
        )
        return
    # A collector may have removed files, but only those that the newest manifest no longer needs.
    if (await manifests.read_latest()).value.replay_after_wal_id <= last_id:
        raise wal_truncated(wal, last_id, manifest)
